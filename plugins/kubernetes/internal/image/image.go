package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// What the worker runs besides the pods of its users.
const (
	// CoreDNSVersion is the version of CoreDNS that cmd/parts builds.
	CoreDNSVersion = "v1.15.0"
	// CoreDNSReference is what the image of CoreDNS is called that cmd/parts makes. Nobody can own a name below .internal, so that it is never pulled from a registry.
	CoreDNSReference = "reeve.internal/coredns:" + CoreDNSVersion
	// CoreDNSArchive is the file of that image, beside the other parts.
	CoreDNSArchive = "coredns.tar"
)

// Unprivileged is a user without a name or any right, for images that need no root. Its number is the one that images without a distribution in them have agreed on.
const Unprivileged = "65532:65532"

// Image is what an image is made of.
type Image struct {
	// Reference is the name of the image: "example.org/hello:1". Without a registry or a tag it is completed as Kubernetes does with the name in a pod: "hello" is docker.io/library/hello:latest.
	Reference string
	// Architecture is that of the programs in it, by Go's name.
	Architecture string
	// Files are all there is in it. The directories that they lie in are made.
	Files []File
	// Entrypoint is the program that runs in the container, and its first arguments. Command follows it where a pod says no arguments. One of them is not empty.
	Entrypoint, Command []string
	// User is as whom it runs, UID:GID; empty: root.
	User string
}

// File is a file of an image, which belongs to root.
type File struct {
	// Path is absolute.
	Path    string
	Mode    fs.FileMode
	Content []byte
	// Link makes it a symbolic link to that path, in place of a regular file with a mode and content.
	Link string
}

// Program returns an image with nothing in it but a static executable, which it runs. The name of the executable is that of the file in it.
func Program(reference, architecture, name string, executable []byte) Image {
	return Image{
		Reference:    reference,
		Architecture: architecture,
		Files:        []File{{Path: "/" + name, Mode: 0o755, Content: executable}},
		Entrypoint:   []string{"/" + name},
		User:         Unprivileged,
	}
}

// Write writes the archive of an image.
func Write(w io.Writer, image Image) error {
	name, err := reference.ParseDockerRef(image.Reference)
	if err != nil {
		return fmt.Errorf("the name of the image %q: %w", image.Reference, err)
	}
	if len(image.Entrypoint)+len(image.Command) == 0 || image.Architecture == "" {
		return fmt.Errorf("the image %s says neither what it runs nor for which architecture, or one of both", name)
	}
	layer, err := layer(image.Files)
	if err != nil {
		return fmt.Errorf("the image %s: %w", name, err)
	}
	a := archive{tar: tar.NewWriter(w)}
	layerAt := a.blob(oci.MediaTypeImageLayer, layer)
	configAt := a.json(oci.MediaTypeImageConfig, oci.Image{
		Platform: oci.Platform{OS: "linux", Architecture: image.Architecture},
		Config: oci.ImageConfig{
			User:       image.User,
			Entrypoint: image.Entrypoint,
			Cmd:        image.Command,
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			WorkingDir: "/",
		},
		// The layer is not compressed: what it unpacks to has the same digest.
		RootFS: oci.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerAt.Digest}},
	})
	versioned := specs.Versioned{SchemaVersion: 2}
	manifestAt := a.json(oci.MediaTypeImageManifest, oci.Manifest{
		Versioned: versioned, MediaType: oci.MediaTypeImageManifest, Config: configAt, Layers: []oci.Descriptor{layerAt},
	})
	manifestAt.Platform = &oci.Platform{OS: "linux", Architecture: image.Architecture}
	// containerd names what it imports by the first; other tools know only the second.
	manifestAt.Annotations = map[string]string{"io.containerd.image.name": name.String(), oci.AnnotationRefName: name.String()}
	a.file(oci.ImageIndexFile, encode(oci.Index{Versioned: versioned, MediaType: oci.MediaTypeImageIndex, Manifests: []oci.Descriptor{manifestAt}}))
	a.file(oci.ImageLayoutFile, encode(oci.ImageLayout{Version: oci.ImageLayoutVersion}))
	if err := errors.Join(a.err, a.tar.Close()); err != nil {
		return fmt.Errorf("write the image %s: %w", name, err)
	}
	return nil
}

// archive is an image layout that is being written. Its first error is kept, and ends it.
type archive struct {
	tar *tar.Writer
	err error
}

// json adds a blob that is JSON.
func (a *archive) json(mediaType string, value any) oci.Descriptor {
	return a.blob(mediaType, encode(value))
}

// blob adds a blob under the name of its digest.
func (a *archive) blob(mediaType string, content []byte) oci.Descriptor {
	sum := digest.FromBytes(content)
	a.file(path.Join(oci.ImageBlobsDir, sum.Algorithm().String(), sum.Encoded()), content)
	return oci.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(content))}
}

func (a *archive) file(name string, content []byte) {
	if a.err == nil {
		a.err = add(a.tar, name, 0o644, content)
	}
}

// encode returns a value as JSON. What this package encodes has nothing in it that cannot be.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// layer returns files as a layer, with the directories that they lie in.
func layer(files []File) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	made := map[string]bool{"/": true}
	for i, file := range files {
		if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path || file.Path == "/" {
			return nil, fmt.Errorf("%q is not an absolute path of a file in its shortest form", file.Path)
		}
		if i > 0 && files[i-1].Path == file.Path {
			return nil, fmt.Errorf("%s is in it twice", file.Path)
		}
		for _, directory := range parents(file.Path) {
			if !made[directory] {
				made[directory] = true
				header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(directory, "/") + "/", Mode: 0o755, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
				if err := w.WriteHeader(header); err != nil {
					return nil, fmt.Errorf("%s: %w", directory, err)
				}
			}
		}
		name, err := strings.TrimPrefix(file.Path, "/"), error(nil)
		if file.Link != "" {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: file.Link, Mode: 0o777, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR})
		} else {
			err = add(w, name, file.Mode, file.Content)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// parents returns the directories above a path, the outermost first.
func parents(name string) []string {
	var above []string
	for directory := path.Dir(name); directory != "/"; directory = path.Dir(directory) {
		above = append(above, directory)
	}
	slices.Reverse(above)
	return above
}

// add adds a file without anything of the time and the machine at which it is written.
func add(w *tar.Writer, name string, mode fs.FileMode, content []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: int64(mode.Perm()), Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
