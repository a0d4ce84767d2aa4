package devcluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// shownLines is how many lines a failed test says of its cluster. Whoever looks at a failure reads its last 40 lines, and the test's own message is to be among them.
	shownLines = 30
	// shownWidth is how many bytes of a line are shown.
	shownWidth = 300
	// logLines is how many lines are shown at most of a log in which the reason may be, and otherLogLines of any other log.
	logLines, otherLogLines = 15, 5
	// lastStatus is how long a node may take to say how it is after a test has failed.
	lastStatus = 10 * time.Second
)

// failedNode is what is known of a node whose test has failed.
type failedNode struct {
	directory string
	// status is what the node says of itself; nil: nothing.
	status *Status
	// silence is why it says nothing.
	silence string
	// logs are the contents of the logs by the names of the roles; reeved's own has the name "reeved".
	logs []failedLog
}

type failedLog struct{ name, content string }

// showFailure says what there is to know of the cluster. `go test -artifacts` keeps the whole logs.
func (c *Cluster) showFailure(t testing.TB) {
	var nodes []failedNode
	var whole bytes.Buffer
	for number, directory := range c.NodeDirectories() {
		if _, err := os.Stat(filepath.Join(directory, "reeved.yaml")); err != nil {
			continue
		}
		node := failedNode{directory: directory}
		if number == 0 {
			// As root the state may be elsewhere than the dev directory.
			node.directory = c.Directory
		}
		node.status, node.silence = c.statusOf(t, node.directory)
		paths, _ := filepath.Glob(filepath.Join(directory, "data", "logs", "*.log"))
		for _, path := range append([]string{filepath.Join(directory, "reeved.log")}, paths...) {
			if content, err := os.ReadFile(path); err == nil {
				node.logs = append(node.logs, failedLog{strings.TrimSuffix(filepath.Base(path), ".log"), string(content)})
				fmt.Fprintf(&whole, "--- %s\n%s\n", path, content)
			}
		}
		parameters, _ := os.ReadFile(filepath.Join(directory, "reeved.yaml"))
		fmt.Fprintf(&whole, "--- parameters of %s\n%s\n", directory, parameters)
		nodes = append(nodes, node)
	}
	for _, process := range c.Processes(t) {
		fmt.Fprintln(&whole, process)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), "cluster"+filepath.Base(c.Home)+".txt"), whole.Bytes(), 0o644); err != nil {
		t.Log(err)
	}
	if len(nodes) > 0 {
		t.Log(failure(nodes))
	}
}

// statusOf returns what the node in a directory says of itself, or why it says nothing.
func (c *Cluster) statusOf(t testing.TB, directory string) (*Status, string) {
	asked := c.StartAlone(t, "status", "-o", "json", "--dir", directory)
	select {
	case <-asked.Done():
	case <-time.After(lastStatus):
		asked.kill()
	}
	status, err := ParseStatus(asked.result.Stdout)
	switch {
	case asked.result.Code != 0:
		return nil, asked.result.Stderr
	case err != nil:
		return nil, err.Error()
	}
	return &status, ""
}

// failure says what is known of the nodes of a failed test, in few lines. The test has already said what it missed, and go test prints in that order. So the logs come next,
// and only as much of them as leaves that message in sight. The states with their reasons come last, where everybody looks first.
func failure(nodes []failedNode) string {
	var states []string
	for _, node := range nodes {
		states = append(states, node.states()...)
	}
	// suspects are the logs in which the reason may be: of reeved, and of the roles that are not Ready.
	var suspects, others [][]string
	for _, node := range nodes {
		for _, log := range node.logs {
			if strings.TrimSpace(log.content) == "" {
				continue
			}
			if log.name == "reeved" || node.status == nil || node.status.Role(log.name).State != "Ready" {
				suspects = append(suspects, lastLines(node, log, logLines))
			} else {
				others = append(others, lastLines(node, log, otherLogLines))
			}
		}
	}
	room := shownLines - len(states) - 2 // the first line, and the one before the states
	lines := share(suspects, room)
	lines = append(lines, share(others, room-len(lines))...)
	lines = append(lines, "--- the nodes, when the test had failed")
	return "the cluster of the failed test\n" + strings.Join(append(lines, states...), "\n")
}

// states are a line for the node, and one for each of its roles.
func (n failedNode) states() []string {
	if n.status == nil {
		return []string{oneLine(fmt.Sprintf("%s does not answer: %s", n.directory, n.silence))}
	}
	s := n.status
	line := fmt.Sprintf("%s in %s: %s", s.Node.ID, n.directory, s.Membership.State)
	if s.Membership.Reason != "" {
		line += " (" + s.Membership.Reason + ")"
	}
	line += fmt.Sprintf("; volume %s %s", s.Storage.Kind, s.Storage.State)
	for _, said := range []string{s.Storage.Step, s.Storage.Problem} {
		if said != "" {
			line += ": " + said
		}
	}
	lines := []string{oneLine(line)}
	for _, role := range s.Roles {
		line := fmt.Sprintf("%s %s", role.Role, role.State)
		if role.Reason != "" {
			line += " (" + role.Reason + ")"
		}
		line += fmt.Sprintf(", restarts %d", role.Restarts)
		if f := role.LastFailure; f != nil {
			line += "; it last failed: " + f.Cause
			if len(f.Lines) > 0 {
				line += ": " + f.Lines[len(f.Lines)-1]
			}
		}
		lines = append(lines, oneLine(line))
	}
	return lines
}

// lastLines are the last lines of a log, after one that says whose they are.
func lastLines(node failedNode, log failedLog, most int) []string {
	lines := strings.Split(strings.TrimSpace(log.content), "\n")
	lines = slices.Clone(lines[max(0, len(lines)-most):])
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return append([]string{oneLine("--- log of " + log.name + ", " + node.directory)}, lines...)
}

// share gives each log an equal part of the room: its head and its last lines.
func share(logs [][]string, room int) (shown []string) {
	for i, log := range logs {
		part := (room - len(shown)) / (len(logs) - i)
		if part < 2 {
			continue
		}
		shown = append(shown, log[0])
		shown = append(shown, log[max(1, len(log)-part+1):]...)
	}
	return shown
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > shownWidth {
		text = strings.ToValidUTF8(text[:shownWidth], "") + "…"
	}
	return text
}
