package awake_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/awake"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// childVariable makes the test program a process that a test stops.
const childVariable = "REEVE_TEST_AWAKE"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	leaktest.VerifyTestMain(m)
}

func TestTimePasses(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Millisecond, 7 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := awake.WithTimeout(t.Context(), d)
			defer cancel()
			<-ctx.Done()
			if took := time.Since(began); took != d || !errors.Is(context.Cause(ctx), awake.ErrElapsed) {
				t.Errorf("%s took %s, and ended with %v", d, took, context.Cause(ctx))
			}
		})
	}
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		one, cancel := awake.WithTimeout(parent, time.Hour)
		two, cancelTwo := awake.WithTimeout(parent, time.Hour)
		defer cancelTwo()
		cancel()
		if !errors.Is(context.Cause(one), context.Canceled) || two.Err() != nil {
			t.Errorf("%v, %v", context.Cause(one), two.Err())
		}
		end()
		<-two.Done()
		if errors.Is(context.Cause(two), awake.ErrElapsed) {
			t.Error("its time is not over")
		}
	})
}

// What a process learns that was stopped for longer than it had to wait: it still waits, and can hear the answer that came meanwhile.
func TestAStoppedProcessWaitsOn(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), childVariable+"=1")
	answer, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	pid := command.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("it does not stop: %v", err)
	}
	time.Sleep(2 * wait) // what is tested is that this time does not count
	if _, err := fmt.Fprintln(answer, "well"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	if got := lines.Text(); !strings.HasPrefix(got, "answered") {
		t.Errorf("it says %q", got)
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

const wait = 3 * time.Second

func child() int {
	ctx, cancel := awake.WithTimeout(context.Background(), wait)
	defer cancel()
	answered := make(chan string)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		time.Sleep(wait / 60) // the way of an answer through a busy process
		answered <- line
	}()
	// It stops itself: others might come too late for that.
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		fmt.Println(err)
	}
	select {
	case <-answered:
		fmt.Println("answered")
	case <-ctx.Done():
		fmt.Println("gave up")
	}
	return 0
}
