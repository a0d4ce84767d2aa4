package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/sdk/peercred"
	"github.com/reeveproject/reeve/sdk/role"
)

const (
	// maxLine is the longest handshake line in bytes: a path and some numbers.
	maxLine = 4 << 10
	// maxKept is how many bytes of a process's standard error are kept. The rest is only counted.
	maxKept = 4 << 20
	// lingerTime is how long a descendant may take to end after the process: its end may be under way, and a busy machine delays it.
	lingerTime = 10 * time.Second
	// killTime is how long the kernel may take to end a killed process.
	killTime = 10 * time.Second
)

// process is a started plugin. It leads its own process group.
type process struct {
	leader int    // its process ID
	mark   string // a unique variable of its environment
	// confined is the `reeved confine` that started it; nil if it has no sandbox.
	confined *confined
	// directory is where it must put its socket.
	directory string
	ended     chan struct{} // closed when the process was waited for
	code      int           // the status with which it ended, if it did by itself; -1 otherwise
	how       string        // how it ended, for people
	first     chan string   // its first line of output, once; closed after it
	out, err  *os.File      // the reading ends
	readers   sync.WaitGroup
	conn      *grpc.ClientConn
	line      handshake // set by connect
	// patience is that of the configuration.
	patience time.Duration

	mu     sync.Mutex
	log    bytes.Buffer
	amount int64 // bytes written to standard error
}

// pipes makes a process's standard output and error. The caller closes the returned ends after the start.
func (p *process) pipes() (out, stderr *os.File, err error) {
	if p.out, out, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if p.err, stderr, err = os.Pipe(); err != nil {
		return nil, nil, errors.Join(err, p.out.Close(), out.Close())
	}
	return out, stderr, nil
}

// read starts to read a started process's output.
func (p *process) read() {
	p.readers.Go(p.readOutput)
	p.readers.Go(p.readLog)
}

// launchProcess executes a file with exactly the given environment.
func launchProcess(by *spawner, executable, directory, mark string, environment []string) (*process, error) {
	p := &process{mark: mark, directory: directory, ended: make(chan struct{}), first: make(chan string, 1)}
	out, stderr, err := p.pipes()
	if err != nil {
		return nil, err
	}
	command := exec.Command(executable)
	command.Env = append([]string{mark}, environment...)
	command.Dir = "/"
	command.Stdout, command.Stderr = out, stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = by.start(command)
	_ = out.Close()
	_ = stderr.Close()
	if err != nil {
		_, _ = p.out.Close(), p.err.Close()
		return nil, err
	}
	p.leader = command.Process.Pid
	p.read()
	go func() {
		defer close(p.ended)
		_ = command.Wait() // ProcessState says how it ended
		p.code, p.how = command.ProcessState.ExitCode(), command.ProcessState.String()
	}()
	return p, nil
}

// readOutput keeps the first line and discards the rest.
func (p *process) readOutput() {
	reader := bufio.NewReaderSize(p.out, maxLine)
	line, _ := reader.ReadSlice('\n')
	p.first <- string(line)
	close(p.first)
	_, _ = io.Copy(io.Discard, reader)
}

func (p *process) readLog() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := p.err.Read(buffer)
		p.mu.Lock()
		p.amount += int64(n)
		p.log.Write(buffer[:min(n, maxKept-p.log.Len())])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// logged returns what the process wrote to standard error, and how many bytes that were.
func (p *process) logged() (string, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String(), p.amount
}

// lastWords returns the end of its log, to show why it ended; empty if there is none.
func (p *process) lastWords() string {
	text, _ := p.logged()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return ""
	}
	return fmt.Sprintf("; it last wrote: %s", last[:min(len(last), 512)])
}

// pid returns the ID of the process and its group.
func (p *process) pid() int { return p.leader }

// exit says how the process ended. Call it after the end.
func (p *process) exit() string { return p.how }

// signal sends the process a signal unless it has ended.
func (p *process) signal(signal syscall.Signal) error {
	select {
	case <-p.ended:
		return os.ErrProcessDone
	default:
		return syscall.Kill(p.leader, signal)
	}
}

// awaitEnd waits for the process to end by itself.
func (p *process) awaitEnd(ctx context.Context, most time.Duration) error {
	timer := newTimer(most, p.waited)
	defer timer.Stop()
	for {
		select {
		case <-p.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			if timer.over() && p.alive() {
				return fmt.Errorf("its process is still there after %s", most)
			}
		}
	}
}

// handshake is the parsed handshake line.
type handshake struct {
	core, version, network, address, protocol, certificate string
}

// errSilent says that there was no line.
var errSilent = errors.New("it prints no handshake line")

// awaitLine waits for the first line of output and takes it apart.
func (p *process) awaitLine(ctx context.Context) (handshake, error) {
	within := cmp.Or(p.patience, handshakeTime)
	timer := time.NewTimer(within)
	defer timer.Stop()
	var line string
	select {
	case line = <-p.first:
	case <-ctx.Done():
		return handshake{}, ctx.Err()
	case <-timer.C:
		return handshake{}, fmt.Errorf("%w within %s%s", errSilent, within, p.lastWords())
	}
	if line == "" {
		select {
		case <-p.ended:
			return handshake{}, fmt.Errorf("%w and ends (%s)%s", errSilent, p.exit(), p.lastWords())
		case <-time.After(lingerTime):
			return handshake{}, fmt.Errorf("%w and closes its standard output%s", errSilent, p.lastWords())
		}
	}
	fields := strings.Split(strings.TrimRight(line, "\r\n"), "|")
	if !strings.HasSuffix(line, "\n") || len(fields) < 5 {
		return handshake{}, fmt.Errorf("its first line of output is %q, which is no handshake line: nothing else may be printed before it", line[:min(len(line), 200)])
	}
	h := handshake{core: fields[0], version: fields[1], network: fields[2], address: fields[3], protocol: fields[4]}
	if len(fields) > 5 {
		h.certificate = fields[5]
	}
	return h, nil
}

// connect connects to the socket of the handshake. As for the core, the socket must be in the process's own directory, and a process of its group
// must listen on it: another one could answer for the plugin.
func (p *process) connect(h handshake) error {
	if h.network != "unix" || filepath.Dir(h.address) != p.directory {
		return fmt.Errorf("it listens on %s %s, want a Unix socket directly in %s", h.network, h.address, p.directory)
	}
	ofPlugin := func(peer peercred.Peer) error {
		if group, err := syscall.Getpgid(peer.PID); err != nil || group != p.pid() {
			return fmt.Errorf("process %d listens on it, and is not in the process group of the plugin", peer.PID)
		}
		return nil
	}
	conn, err := grpc.NewClient("unix:"+h.address, append(patience(), grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(peercred.Credentials(ofPlugin)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(role.MaxMessageSize), grpc.MaxCallSendMsgSize(role.MaxMessageSize)))...)
	p.conn, p.line = conn, h
	return err
}

// end kills the process and its descendants and waits for their end.
func (p *process) end() (err error) {
	if p.confined != nil {
		err = p.confined.end()
	} else if p.alive() { // its number may be reused by now
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	}
	<-p.ended
	kill := func() []int {
		alive := p.descendants()
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return alive
	}
	if survivors := p.await(kill, killTime); len(survivors) > 0 {
		err = errors.Join(err, fmt.Errorf("processes %v of the plugin do not end although they were killed", survivors))
	}
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.drain()
	return err
}

// alive reports whether the process was not reaped yet.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// drain reads the output to its end, which comes when the process and its descendants have ended. An escaped process may still hold it open.
func (p *process) drain() {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.readers.Wait()
	}()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-read:
	case <-timer.C:
	}
	_, _ = p.out.Close(), p.err.Close()
	<-read
}

// left returns the descendants that survive the process's own end. It waits for those that are ending.
func (p *process) left() []int { return p.await(p.descendants, lingerTime) }

// await polls alive until it is empty or the time is over. There is no notification of the end of a process that is not a child.
func (p *process) await(alive func() []int, most time.Duration) []int {
	for deadline := time.Now().Add(most); ; time.Sleep(10 * time.Millisecond) {
		pids := alive()
		if len(pids) == 0 || time.Now().After(deadline) {
			return pids
		}
	}
}
