// The fragile plugin: a role that ends in the way that it is told to.
package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/reeveproject/reeve/sdk/role"
)

// Set by the linker: what a configuration may say, too.
var (
	version = "0.1.0"
	end     = "exit"
	// lastWords is what a panic says.
	lastWords = "the glass bursts"
)

type configuration struct {
	// End is how the role ends: "exit", "signal", "panic" or "never".
	End string `json:"end"`
}

func main() {
	role.Serve(role.Plugin{
		Name:    "fragile",
		Version: version,
		Roles: []role.Role{{
			Name:    "fragile",
			Summary: "Ends as it is told",
			CheckConfiguration: func(document []byte) error {
				return role.Decode(document, &configuration{})
			},
			Run: run,
		}},
	})
}

func run(ctx context.Context, host *role.Host) error {
	c := configuration{End: end}
	if err := role.Decode(host.Configuration(), &c); err != nil {
		return err
	}
	host.SetValue("end", c.End)
	fmt.Fprintln(os.Stderr, "the glass is thin")
	switch c.End {
	case "exit":
		fmt.Fprintln(os.Stderr, "the glass breaks")
		os.Exit(3)
	case "signal":
		fmt.Fprintln(os.Stderr, "the glass melts")
		segmentationFault()
	case "panic":
		panic(lastWords)
	}
	host.Ready()
	<-ctx.Done()
	return nil
}

// segmentationFault ends the process as the kernel ends one that is written in C. Go's own handler of the signal would exit with a code.
func segmentationFault() {
	var standard [4]uint64 // a struct sigaction of SIG_DFL without flags
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGSEGV), uintptr(unsafe.Pointer(&standard)), 0, 8, 0, 0)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
	select {}
}
