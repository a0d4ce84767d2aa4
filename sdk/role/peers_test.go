package role_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// Environment variables of the processes that stand in for a core and for a stranger.
const (
	socketVariable   = "REEVE_TEST_SOCKET"
	hostVariable     = "REEVE_TEST_HOST"
	instanceVariable = "REEVE_TEST_INSTANCE"
)

// beCore is the main function of a core that starts the role "tied" and then does nothing more.
func beCore() {
	conn, err := grpc.NewClient("unix:"+os.Getenv(socketVariable), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		_, err = rolev1.NewRoleServiceClient(conn).Start(context.Background(), &rolev1.StartRequest{
			InstanceId: os.Getenv(instanceVariable), Role: "tied", HostSocket: os.Getenv(hostVariable), CoreUid: uint32(os.Getuid()),
		})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	select {}
}

// beStranger is the main function of a process of another user that tries to call the plugin.
func beStranger() {
	conn, err := grpc.NewClient("unix:"+os.Getenv(socketVariable), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		_, err = rolev1.NewRoleServiceClient(conn).Describe(context.Background(), &rolev1.DescribeRequest{})
	}
	fmt.Println(status.Code(err))
	os.Exit(0)
}

func helper(t *testing.T, kind string, process *roletest.Process) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(executable)
	command.Env = []string{asPlugin + "=" + kind, socketVariable + "=" + strings.TrimPrefix(process.Conn().Target(), "unix:"), withoutPause}
	return command
}

func TestEndsWithCore(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t, "probe")
	core := helper(t, "core", process)
	core.Env = append(core.Env, hostVariable+"="+host.Socket(), instanceVariable+"=n/tied/1")
	output, err := core.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(); err != nil {
		t.Fatal(err)
	}
	var line string
	_, err = fmt.Fscanln(output, &line)
	if err != nil || line != "started" {
		t.Errorf("the core could not start the role: %q, %v", line, err)
	}
	_ = core.Process.Kill()
	_ = core.Wait()
	wantExit(t, process, 0)
}

func TestStrangersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	process := launch(t, "probe")
	socket := strings.TrimPrefix(process.Conn().Target(), "unix:")
	// The directory is what keeps strangers away; here it does not, to see the check behind it.
	for path, mode := range map[string]os.FileMode{socket: 0o777, filepath.Dir(socket): 0o711, filepath.Dir(filepath.Dir(socket)): 0o711} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := process.Service().Describe(t.Context(), &rolev1.DescribeRequest{}); err != nil {
		t.Fatal(err)
	}
	stranger := helper(t, "stranger", process)
	executable := copyExecutable(t, filepath.Dir(filepath.Dir(socket)))
	stranger.Path, stranger.Args = executable, []string{executable}
	stranger.Dir = "/"
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	output, err := stranger.CombinedOutput()
	if err != nil || string(output) != "Unavailable\n" {
		t.Errorf("want Unavailable, got %q, %v", output, err)
	}
	if !strings.Contains(process.Log(), "does not come from the core") {
		t.Errorf("the log does not tell of it:\n%s", process.Log())
	}
}

// copyExecutable puts the test's binary where another user can execute it.
func copyExecutable(t *testing.T, directory string) string {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(executable)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "copy")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
