package plugin_test

import (
	"bytes"
	gocontext "context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// patience is far more than anything takes; it only bounds a test that fails.
const patience = 5 * time.Minute

func context() gocontext.Context { return gocontext.Background() }

func timeout(t testing.TB) (gocontext.Context, gocontext.CancelFunc) {
	return gocontext.WithTimeout(t.Context(), patience)
}

// granted are grants without parameters.
func granted(names ...string) (list []*rolev1.Grant) {
	for _, name := range names {
		list = append(list, &rolev1.Grant{Name: name})
	}
	return list
}

func reader(content []byte) io.Reader { return bytes.NewReader(content) }

// nowhere swallows the logger's own output; the tests look at its sink.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// logSink keeps what was logged.
type logSink struct {
	mu    sync.Mutex
	lines []logged
	more  chan struct{}
}

type logged struct {
	level   hclog.Level
	message string
	fields  map[string]string
}

func (l *logSink) Accept(_ string, level hclog.Level, message string, arguments ...any) {
	line := logged{level: level, message: message, fields: make(map[string]string)}
	for i := 0; i+1 < len(arguments); i += 2 {
		line.fields[fmt.Sprint(arguments[i])] = fmt.Sprint(arguments[i+1])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// ofRole returns the lines that say whose they are by an instance and nothing else: those that a role wrote.
func (l *logSink) ofRole() (lines []logged) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if line.fields["instance"] != "" && len(line.fields) == 2 && line.level == hclog.Warn {
			lines = append(lines, line)
		}
	}
	return lines
}

// wait returns the first line that matches.
func (l *logSink) wait(t testing.TB, match func(logged) bool) logged {
	t.Helper()
	ctx, cancel := timeout(t)
	defer cancel()
	for {
		l.mu.Lock()
		for _, line := range l.lines {
			if match(line) {
				l.mu.Unlock()
				return line
			}
		}
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatal("the line was not logged")
		}
	}
}

// has reports whether a line that matches was logged.
func (l *logSink) has(match func(logged) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, match)
}

// processes lists the live processes that belong to the instances of a node: by their executable, their environment or, as root, their user.
func (n *testNode) processes(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	if !n.users.Shared() {
		for _, role := range []string{"one", "two"} {
			uid, _, err := n.users.Of(role)
			if err != nil {
				t.Fatal(err)
			}
			own[strconv.Itoa(int(uid))] = true
		}
	}
	var found []string
	for _, name := range names {
		status, err := os.ReadFile(filepath.Join(name, "status"))
		if err != nil || bytes.Contains(status, []byte("State:\tZ")) {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join(name, "environ"))
		marked := bytes.Contains(environment, []byte(plugin.InstanceVariable+"=reeve-"+filepath.Base(n.dir)+"/"))
		executable, _ := os.Readlink(filepath.Join(name, "exe"))
		marked = marked || strings.HasPrefix(strings.TrimPrefix(executable, "/memfd:"), n.dir+"/")
		var uid string
		for line := range strings.Lines(string(status)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Uid:" {
				uid = fields[1]
			}
		}
		if marked || own[uid] {
			found = append(found, filepath.Base(name)+" (user "+uid+")")
		}
	}
	return found
}

// storedFile is where the store of the node keeps an executable.
func (n *testNode) storedFile(digest string) string {
	return filepath.Join(n.dir, "data", "plugins", strings.Replace(digest, ":", "-", 1))
}

// entries lists a directory below the node's.
func (n *testNode) entries(t testing.TB, path ...string) []string {
	t.Helper()
	found, err := os.ReadDir(filepath.Join(append([]string{n.dir}, path...)...))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	return names
}

// groupsLeft are the control groups of the node below its own, or its own.
func (n *testNode) groupsLeft(t testing.TB, below string) []string {
	t.Helper()
	const root, deepest = "/sys/fs/cgroup", 4
	var left []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist):
			return nil // others come and go
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case entry.Name() == "reeve-"+filepath.Base(n.dir):
			found, err := filepath.Glob(path + below)
			if err != nil {
				return err
			}
			for _, path := range found {
				if info, err := os.Stat(path); err == nil && info.IsDir() {
					left = append(left, path)
				}
			}
			return fs.SkipDir
		case strings.HasPrefix(entry.Name(), "reeve-") || strings.Count(path, "/") == strings.Count(root, "/")+deepest:
			return fs.SkipDir // of another node, or too deep
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return left
}

// nothingLeft fails the test unless the node runs nothing and its run directory is empty but for its parts.
func (n *testNode) nothingLeft(t testing.TB) {
	t.Helper()
	if left := n.processes(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if left := n.groupsLeft(t, "/*"); len(left) > 0 {
		t.Errorf("control groups are left: %v", left)
	}
	for _, part := range []string{"plugin", "instances", "host", "access"} {
		if left := n.entries(t, "run", part); len(left) > 0 {
			t.Errorf("run/%s holds %v", part, left)
		}
	}
}
