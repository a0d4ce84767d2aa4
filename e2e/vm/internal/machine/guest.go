package machine

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reeveproject/reeve/e2e/vm/internal/guestapi"
)

// portName is the control port's name in the guest.
const portName = guestapi.Port

// Guest is a machine that is on.
type Guest struct {
	// Begin is when it was switched on, and Up how long it then took to answer.
	Begin time.Time
	Up    time.Duration
	// Kernel is the release of its kernel.
	Kernel string

	directory string
	qemu, tpm *process
	client    *rpc.Client
}

func (g *Guest) consoleFile() string { return filepath.Join(g.directory, "console") }

func (g *Guest) socket(name string) string { return filepath.Join(g.directory, name) }

// Console returns the end of what the machine has written to its console.
func (g *Guest) Console() string {
	const most = 8 << 10
	content, err := os.ReadFile(g.consoleFile())
	if err != nil {
		return err.Error()
	}
	log, _ := os.ReadFile(filepath.Join(g.directory, "qemu.log"))
	if len(content) > most {
		content = content[len(content)-most:]
	}
	return strings.ToValidUTF8(string(content)+string(log), "?")
}

// CPU is how much of this machine's processors the guest has used: a better measure of what a step costs than the time that it took, where other tests run too.
func (g *Guest) CPU() time.Duration { return g.qemu.cpu() }

// connect connects to the guest's agent and waits until it answers.
func (g *Guest) connect(ctx context.Context, timeout time.Duration) error {
	conn, err := g.qemu.dial(ctx, g.socket("c"), timeout)
	if err != nil {
		return err
	}
	g.client = rpc.NewClient(conn)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var hello guestapi.Hello
	if err := g.call(ctx, "Hello", struct{}{}, &hello); err != nil {
		return err
	}
	g.Up, g.Kernel = time.Since(g.Begin), hello.Kernel
	return nil
}

// call calls the agent, for as long as the machine is on.
func (g *Guest) call(ctx context.Context, method string, arguments, reply any) error {
	call := g.client.Go(guestapi.Service+"."+method, arguments, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-g.qemu.gone:
		return errors.New("the machine has been switched off")
	case <-ctx.Done():
		return fmt.Errorf("the guest does not answer %s: %w", method, context.Cause(ctx))
	}
}

// slack is how much longer than the guest itself a call may take, by the clock of this machine. A guest's time passes more slowly than this machine's, the more so the
// more else this one has to do: that is met only by a guest that hangs.
const slack = 15 * time.Minute

// Run runs a program in the guest to its end.
func (g *Guest) Run(ctx context.Context, command guestapi.Command) (guestapi.Result, error) {
	if command.Timeout == 0 {
		command.Timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, command.Timeout+slack)
	defer cancel()
	var result guestapi.Result
	return result, g.call(ctx, "Run", command, &result)
}

// Start starts a program in the guest, whose output goes to a file there.
func (g *Guest) Start(ctx context.Context, log string, arguments ...string) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	return pid, g.call(ctx, "Start", guestapi.Command{Arguments: arguments, Log: log}, &pid)
}

// Wait waits for the end of a program that was started.
func (g *Guest) Wait(ctx context.Context, pid int, timeout time.Duration) (guestapi.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+slack)
	defer cancel()
	var result guestapi.Result
	return result, g.call(ctx, "Wait", guestapi.Wait{PID: pid, Timeout: timeout}, &result)
}

// ReadFile reads a file of the guest.
func (g *Guest) ReadFile(ctx context.Context, path string) (content []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	return content, g.call(ctx, "ReadFile", path, &content)
}

// ReadTail reads what a file of the guest has from an offset on, at most a MiB of it, and how long the guest has been running.
func (g *Guest) ReadTail(ctx context.Context, path string, offset int64) (read guestapi.Read, err error) {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	return read, g.call(ctx, "ReadTail", guestapi.Tail{Path: path, Offset: offset}, &read)
}

// WriteFile writes a file of the guest.
func (g *Guest) WriteFile(ctx context.Context, path string, content []byte, mode os.FileMode) error {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	return g.call(ctx, "WriteFile", guestapi.File{Path: path, Content: content, Mode: uint32(mode)}, &struct{}{})
}

// SetClock sets the guest's clock.
func (g *Guest) SetClock(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	return g.call(ctx, "SetClock", now, &struct{}{})
}

// PowerOff switches the machine off in an orderly way: what was written is on its disks.
func (g *Guest) PowerOff(ctx context.Context) error {
	call := g.client.Go(guestapi.Service+".End", guestapi.PowerOff, &struct{}{}, make(chan *rpc.Call, 1))
	select {
	case <-g.qemu.gone:
	case <-call.Done:
		// The connection may break before the process has ended.
		if err := g.qemu.wait(endTimeout); err != nil {
			return errors.Join(fmt.Errorf("the machine does not switch itself off: %w", errors.Join(call.Error, err)), g.Kill())
		}
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), g.Kill())
	case <-time.After(slack):
		return errors.Join(errors.New("the machine does not switch itself off"), g.Kill())
	}
	return g.Kill()
}

// Kill takes the machine off the mains, and ends everything that was started for it.
func (g *Guest) Kill() error {
	var problems []error
	if g.qemu != nil {
		problems = append(problems, g.qemu.end())
	}
	if g.tpm != nil {
		// It ends by itself when qemu does, having kept its state.
		if g.tpm.wait(time.Second) != nil {
			problems = append(problems, g.tpm.end())
		}
	}
	if g.client != nil {
		_ = g.client.Close() // It is closed already where the machine ended first.
	}
	return errors.Join(problems...)
}
