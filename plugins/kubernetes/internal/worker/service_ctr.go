package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// imageNamespace is where kubelet's images are in containerd.
const imageNamespace = "k8s.io"

// ctrImporter has containerd's own program ctr import archives.
type ctrImporter struct {
	// program is ctr, and socket that of containerd.
	program, socket string
	// snapshotter is in what layers are unpacked; empty: containerd's own choice. It has to be that of the configuration of containerd.
	snapshotter string
}

const (
	// ctrDelay is how long the pipes of ctr are waited for when it has ended.
	ctrDelay = 5 * time.Second
	// maxSaid is how much is kept of what ctr writes.
	maxSaid = 1 << 20
)

// Import implements importer.
func (c ctrImporter) Import(ctx context.Context, archive io.ReadCloser) ([]string, error) {
	if err := c.reachable(ctx); err != nil {
		return nil, errors.Join(err, archive.Close())
	}
	// With --local ctr imports the archive itself and prints the names of the images.
	arguments := []string{"--address", c.socket, "--namespace", imageNamespace, "images", "import", "--local"}
	if c.snapshotter != "" {
		arguments = append(arguments, "--snapshotter", c.snapshotter)
	}
	// The kernel ends ctr with the thread that started it: this one, which waits here for as long as it runs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	command := exec.CommandContext(ctx, c.program, append(arguments, "-")...)
	command.Env = []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = ctrDelay
	var said, complained tail
	command.Stdout, command.Stderr = &said, &complained
	into, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s cannot be started: %w", c.program, err), archive.Close())
	}
	passed := make(chan error, 1)
	go func() {
		err := pass(into, archive)
		if err != nil {
			// ctr waits for what will not come.
			end(err)
		}
		passed <- err
	}()
	if err := command.Wait(); err != nil {
		why := context.Cause(ctx)
		if why == nil {
			why = fmt.Errorf("the container runtime does not take the archive: %s", complained.reason(err))
		}
		closing := archive.Close()
		<-passed
		return nil, errors.Join(why, closing)
	}
	if err := <-passed; err != nil {
		return nil, err
	}
	references := importedNames(said.String())
	if len(references) == 0 {
		return nil, errNoName
	}
	for _, reference := range references {
		if err := c.pin(ctx, reference); err != nil {
			return nil, err
		}
	}
	return references, nil
}

// pinned is the label by which kubelet leaves an image where it is when the disk is full. No registry has what was loaded: what is removed would be gone.
const pinned = "io.cri-containerd.pinned=pinned"

// pin has an image stay.
func (c ctrImporter) pin(ctx context.Context, reference string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := exec.CommandContext(ctx, c.program, "--address", c.socket, "--namespace", imageNamespace, "images", "label", reference, pinned)
	command.Env = []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = ctrDelay
	var complained tail
	command.Stderr = &complained
	if err := command.Run(); err != nil {
		return fmt.Errorf("the image %s is loaded, and cannot be kept from being removed: %s", reference, complained.reason(err))
	}
	return nil
}

// reachable says whether containerd listens: ctr would wait for it.
func (c ctrImporter) reachable(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoRuntime, err)
	}
	return conn.Close()
}

// pass passes an archive on to a program and reads it to its end, also when the program has ended: behind the end of a tar may be more, which it need not read. The error is that of the archive.
func pass(into io.WriteCloser, archive io.Reader) error {
	buffer := make([]byte, 256<<10)
	open := true
	for {
		n, err := archive.Read(buffer)
		if n > 0 && open {
			_, refused := into.Write(buffer[:n])
			open = refused == nil
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			// Not closed: the program must not take it for the end of the archive.
			return err
		}
		_ = into.Close()
		return nil
	}
}

// imported is what ctr says of each image: "unpacking docker.io/library/busybox:latest (sha256:…)...done".
var imported = regexp.MustCompile(`(?m)^unpacking (\S+) \(sha\d+:[0-9a-f]+\)\.\.\.`)

// importedNames are the names of the images that ctr has imported, each once.
func importedNames(said string) []string {
	var names []string
	for _, found := range imported.FindAllStringSubmatch(said, -1) {
		if !slices.Contains(names, found[1]) {
			names = append(names, found[1])
		}
	}
	return names
}

// tail keeps the last of what is written to it.
type tail struct{ kept bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	n, err := t.kept.Write(text)
	if over := t.kept.Len() - maxSaid; over > 0 {
		t.kept.Next(over)
	}
	return n, err
}

func (t *tail) String() string { return t.kept.String() }

// reason is the last line that a program wrote before it ended, or how it ended.
func (t *tail) reason(err error) string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	if last := strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "ctr: "); last != "" {
		return last
	}
	return err.Error()
}
