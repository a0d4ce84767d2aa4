package role_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/peercred"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// byHand starts the probe as a person does who debugs it, and returns where it waits and what it says after that.
func byHand(t *testing.T) (command *exec.Cmd, socket string, said *bufio.Scanner) {
	t.Helper()
	command = exec.Command(os.Args[0], "-debug")
	command.Env = []string{asPlugin + "=probe", "TMPDIR=/tmp"}
	stderr, err := command.StderrPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // if it has not ended
		_ = command.Wait()
		if socket != "" {
			_ = os.RemoveAll(filepath.Dir(socket))
		}
	})
	for said = bufio.NewScanner(stderr); said.Scan(); {
		if words := strings.Fields(said.Text()); len(words) == 7 && words[3] == "debug" && words[5] == "probe" {
			socket = words[6]
			return command, socket, said
		}
	}
	t.Fatal("it does not say how a node takes it")
	return nil, "", nil
}

// A plugin that is started by hand waits for a node and runs its role for it, and Ctrl-C ends it with what it made.
func TestDebug(t *testing.T) {
	for _, started := range []bool{true, false} {
		command, socket, said := byHand(t)
		if group, err := syscall.Getpgid(command.Process.Pid); err != nil || group != command.Process.Pid {
			t.Errorf("its process group is %d (%v), and it is process %d", group, err, command.Process.Pid)
		}
		if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory of its socket: %v, %v", info, err)
		}
		if started {
			startByHand(t, socket)
		}
		if err := command.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		for said.Scan() {
			if strings.HasPrefix(said.Text(), "{") {
				t.Errorf("its log is not for people: %s", said.Text())
			}
		}
		if err := command.Wait(); err != nil {
			t.Errorf("started %t: %v", started, err)
		}
		if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory is left: %v", err)
		}
	}
}

// startByHand starts the role as a node does, and returns when it is Ready.
func startByHand(t *testing.T, socket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(peercred.Credentials(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	service, host := rolev1.NewRoleServiceClient(conn), roletest.NewHost(t)
	request := roletest.Launch(t, os.Args[0], asPlugin+"=probe").Request(host, "probe", `{"do": "tell"}`)
	if _, err := service.Start(ctx, request); err != nil {
		t.Fatal(err)
	}
	watch, err := service.Watch(ctx, &rolev1.WatchRequest{})
	for now := new(rolev1.WatchResponse); now.GetState() != rolev1.RoleState_ROLE_STATE_READY; {
		if err == nil {
			now, err = watch.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What a node launches has the handshake's variable, and is not debugged whatever its arguments say.
func TestNotDebugged(t *testing.T) {
	command := exec.Command(os.Args[0], "-debug", "-more")
	command.Env = []string{asPlugin + "=probe"}
	if output, err := command.CombinedOutput(); err == nil || !strings.Contains(string(output), "reeve plugin add") || strings.Contains(string(output), "waits to be debugged") {
		t.Errorf("with another argument too: %v\n%s", err, output)
	}
	launched := exec.Command(os.Args[0], "-debug")
	launched.Env = []string{asPlugin + "=probe", role.Handshake.MagicCookieKey + "=" + role.Handshake.MagicCookieValue, "TMPDIR=/tmp"}
	out, err := launched.StdoutPipe()
	if err == nil {
		err = launched.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(soon, func() { _ = launched.Process.Kill() }).Stop()
	line := bufio.NewScanner(out)
	if !line.Scan() || !strings.HasPrefix(line.Text(), "1|") {
		t.Errorf("what a node launches does not make the handshake: %q", line.Text())
	}
	_ = launched.Process.Kill()
	_ = launched.Wait()
}
