package tpmtest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/go-tpm/tpm2"
)

// ErrHangUp is returned by a Behaviour that ends the connection; what it returns beside it is sent before.
var ErrHangUp = errors.New("tpmtest: hang up")

// Behaviour is what a line makes of a command: it returns what the caller gets for an answer. ask has the TPM itself answer. The context ends with the
// connection, and when the line gets another Behaviour.
type Behaviour func(ctx context.Context, command []byte, ask func(command []byte) ([]byte, error)) (answer []byte, err error)

// Faithful is the Behaviour of a line that works.
func Faithful(_ context.Context, command []byte, ask func([]byte) ([]byte, error)) ([]byte, error) {
	return ask(command)
}

// Silent is the Behaviour of a TPM that hangs.
func Silent(ctx context.Context, _ []byte, _ func([]byte) ([]byte, error)) ([]byte, error) {
	<-ctx.Done()
	return nil, nil
}

// Code is the answer of a TPM that refuses with a code.
func Code(code tpm2.TPMRC) []byte {
	answer := binary.BigEndian.AppendUint16(nil, uint16(tpm2.TPMSTNoSessions))
	answer = binary.BigEndian.AppendUint32(answer, 10)
	return binary.BigEndian.AppendUint32(answer, uint32(code))
}

// CommandCode is which command it is.
func CommandCode(command []byte) tpm2.TPMCC {
	if len(command) < 10 {
		return 0
	}
	return tpm2.TPMCC(binary.BigEndian.Uint32(command[6:]))
}

// Line is a line to a TPM that does with commands and answers what its Behaviour says.
type Line struct {
	// Path is the socket or device at which it is.
	Path string
	// far is the side of a device that the other opens too; -1 for a socket.
	far int

	tpm *TPM
	// serving is held for reading while a command is answered.
	serving   sync.RWMutex
	mu        sync.Mutex
	behaviour Behaviour
	// behaves ends when the behaviour does.
	behaves context.Context
	change  context.CancelFunc
	ends    map[io.Closer]bool
	stopped bool
	done    sync.WaitGroup
}

func newLine(p *TPM, path string, behaviour Behaviour) *Line {
	l := &Line{Path: path, far: -1, tpm: p, ends: map[io.Closer]bool{}}
	l.Set(behaviour)
	return l
}

// NewSocket puts a Unix socket before the TPM.
func (p *TPM) NewSocket(behaviour Behaviour) *Line {
	p.t.Helper()
	directory, err := os.MkdirTemp("", "tpm")
	if err != nil {
		p.t.Fatal(err)
	}
	l := newLine(p, filepath.Join(directory, "s"), behaviour)
	listener, err := net.Listen("unix", l.Path)
	if err != nil {
		p.t.Fatal(err)
	}
	l.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.done.Go(func() { l.serve(conn) })
		}
	})
	p.t.Cleanup(func() {
		_ = listener.Close()
		l.stop()
		_ = os.RemoveAll(directory)
	})
	return l
}

// Set changes how the line behaves, from the next command on. The command at which it is is answered, or not, before Set returns.
func (l *Line) Set(behaviour Behaviour) {
	l.mu.Lock()
	if l.change != nil {
		l.change()
	}
	l.mu.Unlock()
	l.serving.Lock()
	defer l.serving.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behaviour = behaviour
	l.behaves, l.change = context.WithCancel(context.Background())
}

func (l *Line) stop() {
	l.mu.Lock()
	l.stopped = true
	l.change()
	for end := range l.ends {
		_ = end.Close()
	}
	l.mu.Unlock()
	l.done.Wait()
}

// serve answers commands until the other side hangs up, or the behaviour does.
func (l *Line) serve(near io.ReadWriteCloser) {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		_ = near.Close()
		return
	}
	l.ends[near] = true
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var tpm net.Conn
	defer func() {
		cancel()
		_ = near.Close()
		if tpm != nil {
			_ = tpm.Close()
		}
		l.mu.Lock()
		delete(l.ends, near)
		l.mu.Unlock()
	}()
	// The TPM takes one connection at a time, so this one is made when it is needed, and on a device, which is never closed, given back after each command.
	ask := func(command []byte) ([]byte, error) {
		if tpm == nil {
			var err error
			if tpm, err = net.Dial("unix", l.tpm.Socket()); err != nil {
				return nil, err
			}
		}
		if _, err := tpm.Write(command); err != nil {
			return nil, err
		}
		answer, err := message(tpm)
		if _, device := near.(*os.File); device {
			_ = tpm.Close()
			tpm = nil
		}
		return answer, err
	}
	commands := make(chan []byte)
	l.done.Go(func() {
		defer close(commands)
		defer cancel()
		for {
			command, err := message(near)
			if err != nil {
				return
			}
			select {
			case commands <- command:
			case <-ctx.Done():
				return
			}
		}
	})
	for command := range commands {
		if err := l.answer(ctx, near, command, ask); err != nil {
			return
		}
	}
}

// answer does with one command what the behaviour says.
func (l *Line) answer(ctx context.Context, near io.Writer, command []byte, ask func([]byte) ([]byte, error)) error {
	l.serving.RLock()
	defer l.serving.RUnlock()
	l.mu.Lock()
	behaviour := l.behaviour
	during, ended := context.WithCancel(l.behaves)
	l.mu.Unlock()
	defer ended()
	defer context.AfterFunc(ctx, ended)()
	answer, err := behaviour(during, command, ask)
	if len(answer) > 0 {
		if _, err := near.Write(answer); err != nil {
			return err
		}
	}
	return err
}

// message reads a command or an answer, which says its size itself.
func message(from io.Reader) ([]byte, error) {
	header := make([]byte, 10)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[2:])
	if size < 10 || size > 1<<16 {
		return nil, errors.New("tpmtest: no message of a TPM")
	}
	whole := make([]byte, size)
	copy(whole, header)
	_, err := io.ReadFull(from, whole[10:])
	return whole, err
}
