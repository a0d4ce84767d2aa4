package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
)

// contents reads an archive: its files, each as its header says and with what is in it.
func contents(t *testing.T, archive []byte) (names []string, files map[string][]byte) {
	t.Helper()
	files = make(map[string][]byte)
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 0 || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s has a time or an owner: %v", header.Name, header)
		}
		if header.Typeflag == tar.TypeSymlink {
			names = append(names, header.Name+" -> "+header.Linkname)
			continue
		}
		names = append(names, fmt.Sprintf("%s %o", header.Name, header.Mode))
		files[header.Name] = content
	}
}

// load reads what a descriptor points at, and checks that it is that.
func load(t *testing.T, files map[string][]byte, at oci.Descriptor, into any) {
	t.Helper()
	content, ok := files["blobs/sha256/"+at.Digest.Encoded()]
	if !ok || digest.FromBytes(content) != at.Digest || int64(len(content)) != at.Size {
		t.Fatalf("the archive does not have %v", at)
	}
	if into != nil {
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	image := Image{
		Reference:    "example.org/hello:1",
		Architecture: "arm64",
		Files: []File{
			{Path: "/usr/share/hello/text", Mode: 0o644, Content: []byte("good morning")},
			{Path: "/hello", Mode: 0o755, Content: []byte("\x7fELF")},
			{Path: "/usr/bin/hello", Mode: 0o750},
			{Path: "/bin/hello", Link: "/hello"},
		},
		Entrypoint: []string{"/hello", "world"},
		Command:    []string{"again"},
		User:       Unprivileged,
	}
	var archive, again bytes.Buffer
	for _, into := range []*bytes.Buffer{&archive, &again} {
		if err := Write(into, image); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(image.Files)
	}
	if !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Error("the archive depends on the order of the files")
	}

	_, files := contents(t, archive.Bytes())
	if string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("the layout is %s", files["oci-layout"])
	}
	var index oci.Index
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("the index is %s: %v", files["index.json"], err)
	}
	at := index.Manifests[0]
	if at.Annotations["io.containerd.image.name"] != "example.org/hello:1" || at.Platform.Architecture != "arm64" || at.Platform.OS != "linux" {
		t.Errorf("the image is %v", at)
	}
	var manifest oci.Manifest
	load(t, files, at, &manifest)
	var config oci.Image
	load(t, files, manifest.Config, &config)
	if config.Architecture != "arm64" || config.OS != "linux" || !slices.Equal(config.Config.Entrypoint, []string{"/hello", "world"}) || !slices.Equal(config.Config.Cmd, []string{"again"}) || config.Config.User != "65532:65532" || config.Created != nil {
		t.Errorf("the configuration is %+v", config)
	}
	if len(manifest.Layers) != 1 || !slices.Equal(config.RootFS.DiffIDs, []digest.Digest{manifest.Layers[0].Digest}) {
		t.Fatalf("the layers are %v, and unpacked %v", manifest.Layers, config.RootFS.DiffIDs)
	}
	load(t, files, manifest.Layers[0], nil)
	names, inside := contents(t, files["blobs/sha256/"+manifest.Layers[0].Digest.Encoded()])
	want := []string{"bin/ 755", "bin/hello -> /hello", "hello 755", "usr/ 755", "usr/bin/ 755", "usr/bin/hello 750", "usr/share/ 755", "usr/share/hello/ 755", "usr/share/hello/text 644"}
	if !slices.Equal(names, want) {
		t.Errorf("the layer has %q", names)
	}
	if string(inside["usr/share/hello/text"]) != "good morning" {
		t.Errorf("the text in it is %q", inside["usr/share/hello/text"])
	}
}

// TestTheImageIsTheSame holds the whole of an archive: a node that has the pause image is to find it unchanged after an upgrade.
func TestTheImageIsTheSame(t *testing.T) {
	t.Parallel()
	for architecture, want := range map[string]digest.Digest{
		"amd64": "sha256:c495b359c2a5b9fd55fa019d785a192ff904f1319af4488a793b20cd60670eeb",
		"arm64": "sha256:be403a09cf730d3df64de0fb0eafbc8ddcebe42d9226dfb002790e900abaf3c4",
	} {
		pause, err := Pause(architecture)
		if err != nil {
			t.Fatal(err)
		}
		var archive bytes.Buffer
		if err := Write(&archive, pause); err != nil {
			t.Fatal(err)
		}
		if got := digest.FromBytes(archive.Bytes()); got != want {
			t.Errorf("%s: the archive of %s is %s", architecture, PauseReference, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"hello":                "docker.io/library/hello:latest",
		"reeve.internal/hello": "reeve.internal/hello:latest",
		PauseReference:         PauseReference,
		CoreDNSReference:       CoreDNSReference,
	} {
		var archive bytes.Buffer
		if err := Write(&archive, Program(name, "amd64", "hello", nil)); err != nil {
			t.Error(err)
			continue
		}
		_, files := contents(t, archive.Bytes())
		if !strings.Contains(string(files["index.json"]), `"io.containerd.image.name":"`+want+`"`) {
			t.Errorf("%s: the index is %s", name, files["index.json"])
		}
	}
}

// full is a disk that is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

var errFull = errors.New("the disk is full")

func TestWhatIsNoImage(t *testing.T) {
	t.Parallel()
	hello := Program("hello:1", "amd64", "hello", nil)
	for what, change := range map[string]func(*Image){
		"no name":            func(i *Image) { i.Reference = "" },
		"a name with spaces": func(i *Image) { i.Reference = "good morning" },
		"no architecture":    func(i *Image) { i.Architecture = "" },
		"nothing to run":     func(i *Image) { i.Entrypoint = nil },
		"a relative path":    func(i *Image) { i.Files = []File{{Path: "hello"}} },
		"a path outside":     func(i *Image) { i.Files = []File{{Path: "/../hello"}} },
		"a file twice":       func(i *Image) { i.Files = []File{{Path: "/hello"}, {Path: "/hello"}} },
		"the root":           func(i *Image) { i.Files = []File{{Path: "/"}} },
	} {
		image := hello
		change(&image)
		if err := Write(io.Discard, image); err == nil {
			t.Errorf("%s: it is written", what)
		}
	}
	if err := Write(full{}, hello); !errors.Is(err, errFull) {
		t.Errorf("on a full disk: %v", err)
	}
}
