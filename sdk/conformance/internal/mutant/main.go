package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// fault is what is wrong with this plugin.
var fault = faults.Own()

// The arguments of the processes that some of the mutants start: one that is left behind, one that hides as well, and one that ends at once.
const (
	child  = "child"
	hidden = "hidden"
	brief  = "brief"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case child:
			// It ends by itself in the end, should nobody find it.
			time.Sleep(10 * time.Minute)
		case hidden:
			// Where there is no sandbox, nobody but TestMain ends it.
			time.Sleep(10 * time.Minute)
		}
		return
	}
	if _, known := faults.Table()[fault]; !known && fault != faults.None && fault != faults.Plain && fault != faults.Blocked {
		fmt.Fprintf(os.Stderr, "there is no fault %q\n", fault)
		os.Exit(3)
	}
	if os.Getenv("REEVE_PLUGIN") != "reeve.role.v1" && fault != faults.ServesByHand {
		if fault != faults.SilentByHand {
			fmt.Fprintln(os.Stderr, "This is a plugin of a Reeve cluster. It does nothing when it is started by hand.")
		}
		os.Exit(1)
	}
	if err := serve(); err != nil {
		logLine("error", err.Error())
		os.Exit(1)
	}
}

func serve() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	signal.Ignore(syscall.SIGINT)
	switch fault {
	case faults.Mute:
		<-signals
		return nil
	case faults.EndsAtOnce:
		return nil
	case faults.Greets:
		fmt.Println("hello")
	}
	listener, err := listen()
	if err != nil {
		return err
	}
	role := newRole()
	server := grpc.NewServer(grpc.InTapHandle(role.seeBegin))
	rolev1.RegisterRoleServiceServer(server, role)
	go func() { _ = server.Serve(listener) }()
	fmt.Println(handshakeLine(listener))
	go func() {
		for range signals {
			if fault != faults.IgnoresSIGTERM {
				role.end()
			}
		}
	}()
	<-role.over
	server.GracefulStop()
	if fault == faults.BadExit && role.started() || fault == faults.BadAdoptedExit && role.adopted() {
		os.Exit(4)
	}
	return nil
}

func listen() (net.Listener, error) {
	directory := os.Getenv("PLUGIN_UNIX_SOCKET_DIR")
	switch fault {
	case faults.ListensOnTCP:
		return net.Listen("tcp", "127.0.0.1:0")
	case faults.OtherDirectory:
		directory = filepath.Join(directory, "within")
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", filepath.Join(directory, "s"))
}

func handshakeLine(listener net.Listener) string {
	version, protocol, certificate := "1", "grpc", ""
	offered := strings.Split(os.Getenv("PLUGIN_PROTOCOL_VERSIONS"), ",")
	switch fault {
	case faults.OtherVersion:
		version = "2"
	case faults.ClaimsVersions:
		version = offered[len(offered)-1]
	case faults.NetRPC:
		protocol = "netrpc"
	case faults.WantsTLS:
		certificate = "MIIBszCCAVmgAwIBAgIRAK"
	}
	return strings.Join([]string{"1", version, listener.Addr().Network(), listener.Addr().String(), protocol, certificate}, "|")
}

// logLine writes a line as hclog does.
func logLine(level, message string) {
	if fault == faults.PlainLog {
		fmt.Fprintln(os.Stderr, message)
		return
	}
	line, err := json.Marshal(map[string]string{"@level": level, "@message": message, "@timestamp": time.Now().Format("2006-01-02T15:04:05.000000Z07:00")})
	if err == nil {
		_, _ = os.Stderr.Write(append(line, '\n'))
	}
}

// leaveChild starts a process that outlives this one.
func leaveChild() error {
	command := exec.Command("/proc/self/exe", child)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return command.Start()
}
