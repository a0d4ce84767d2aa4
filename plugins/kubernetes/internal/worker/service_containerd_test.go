package worker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/identity"
)

// builtParts is where `make deps-kubernetes` puts them.
const builtParts = "../../../../bin/kubernetes"

// newContainerd runs a containerd without the part that kubelet speaks to, and returns how to give it archives.
func newContainerd(t *testing.T) ctrImporter {
	t.Helper()
	parts, err := filepath.Abs(builtParts)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"containerd", "ctr"} {
		if _, err := os.Stat(filepath.Join(parts, name)); err != nil {
			t.Skipf("there is no %s in bin/kubernetes, which `make deps-kubernetes` builds", name)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("layers are unpacked by root only")
	}
	directory, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	c := ctrImporter{program: filepath.Join(parts, "ctr"), socket: filepath.Join(directory, "c.sock"), snapshotter: "native"}
	configuration := filepath.Join(directory, "config.toml")
	if err := os.WriteFile(configuration, fmt.Appendf(nil, `version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
[grpc]
  address = %q
[plugins.'io.containerd.internal.v1.opt']
  path = %q
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = %q
`, filepath.Join(directory, "root"), filepath.Join(directory, "state"), c.socket, filepath.Join(directory, "opt"), filepath.Join(directory, "s")), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(directory, "log"))
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(filepath.Join(parts, "containerd"), "--config", configuration)
	daemon.Stdout, daemon.Stderr = log, log
	if err := errors.Join(daemon.Start(), log.Close()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	for deadline := time.Now().Add(servicePatience); ; {
		conn, err := net.Dial("unix", c.socket)
		if err == nil {
			_ = conn.Close()
			return c
		}
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("containerd ended: %v\n%s", err, text)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd does not listen: %v", err)
		}
	}
}

// dockerArchive is what `docker save` writes of an image with one file; no names are the image's ID only.
func dockerArchive(t *testing.T, names ...string) []byte {
	t.Helper()
	layer := tarOf(t, 300_000)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(layer))
	// A file is named by what is in it, as docker has it: containerd goes on with one of that name that was broken off before.
	file := "blobs/" + strings.Replace(digest, ":", "/", 1)
	document := func(what any) []byte {
		text, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	configuration := document(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/layer"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest}},
	})
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, entry := range []struct {
		name    string
		content []byte
	}{
		{file, layer}, {"config.json", configuration},
		{"manifest.json", document([]any{map[string]any{"Config": "config.json", "RepoTags": names, "Layers": []string{file}}})},
	} {
		err := writer.WriteHeader(&tar.Header{Name: entry.name, Mode: 0o644, Size: int64(len(entry.content))})
		if err == nil {
			_, err = writer.Write(entry.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// TestContainerd has a containerd take archives as operators send them, and says by containerd's own word what is there then.
func TestContainerd(t *testing.T) {
	c := newContainerd(t)
	s := newServed(t, c, nil)
	for _, test := range []struct {
		name    string
		session identity.Session
		archive []byte
		want    []string
	}{
		{"a name and another one", operates, dockerArchive(t, "hello:1", "registry.example.org/hello:2"), []string{"docker.io/library/hello:1", "registry.example.org/hello:2"}},
		{"compressed", owns, zip(t, dockerArchive(t, "zipped:1")), []string{"docker.io/library/zipped:1"}},
		{"again, with other content", theOwner, dockerArchive(t, "hello:1"), []string{"docker.io/library/hello:1"}},
	} {
		response, err := load(t, s.as(test.session), test.archive)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := slices.Sorted(slices.Values(response.GetReferences())); !slices.Equal(got, test.want) {
			t.Errorf("%s: the images are %q, want %q", test.name, got, test.want)
		}
	}
	whole := dockerArchive(t, "broken:1")
	for _, test := range []struct {
		name    string
		archive []byte
		says    string
	}{
		{"one that is cut", whole[:len(whole)/2], "does not take the archive"},
		{"a tar without images", tarOf(t, 1000), "unrecognized image format"},
		{"an image without a name", dockerArchive(t), "names no image"},
	} {
		if response, err := load(t, s.as(operates), test.archive); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, %v", test.name, response, err)
		}
	}
	// An archive of which all came, and that was not said to be whole.
	ctx, cancel := context.WithCancel(t.Context())
	stream := begin(ctx, t, s.as(operates))
	send(t, stream, whole[:len(whole)-4096])
	cancel()
	if err := stream.RecvMsg(nil); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("what was broken off: %v", err)
	}
	s.stop()
	<-s.ended

	listed, err := exec.CommandContext(t.Context(), c.program, "--address", c.socket, "--namespace", imageNamespace, "images", "list", "--quiet").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Fields(string(listed)), []string{"docker.io/library/hello:1", "docker.io/library/zipped:1", "registry.example.org/hello:2"}; !slices.Equal(got, want) {
		t.Errorf("containerd has %q, want %q", got, want)
	}
}
