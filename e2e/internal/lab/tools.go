package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tools are what a machine has under these names in place of programs that need what a lab has not: a service manager and servers to log in to.
var tools = map[string]func(arguments []string) int{"systemctl": systemctl, "ssh": ssh, "scp": scp}

func systemctl(arguments []string) int {
	if len(arguments) == 0 {
		return failed("systemctl: what is to be done is not said")
	}
	if _, err := call(ownSocket, request{Unit: arguments}, nil, nil); err != nil {
		return failed("systemctl: " + err.Error())
	}
	return 0
}

// ssh is `ssh root@ADDRESS COMMAND…`.
func ssh(arguments []string) int {
	if len(arguments) < 2 {
		return failed("ssh of a lab takes root@ADDRESS and a command")
	}
	return elsewhere(arguments[0], strings.Join(arguments[1:], " "), os.Stdin, os.Stdout)
}

// scp is `scp FILE root@ADDRESS:FILE`, or the other way round.
func scp(arguments []string) int {
	if len(arguments) != 2 {
		return failed("scp of a lab takes one file and where it goes")
	}
	if machine, path, ok := strings.Cut(arguments[1], ":"); ok {
		file, err := os.Open(arguments[0])
		if err != nil {
			return failed("scp: " + err.Error())
		}
		defer func() { _ = file.Close() }()
		return elsewhere(machine, "umask 077 && cat > "+quoted(path), file, os.Stdout)
	}
	machine, path, ok := strings.Cut(arguments[0], ":")
	if !ok {
		return failed("scp: neither file is on another machine")
	}
	file, err := os.OpenFile(arguments[1], os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return failed("scp: " + err.Error())
	}
	defer func() { _ = file.Close() }()
	return elsewhere(machine, "cat "+quoted(path), os.Stdin, file)
}

// elsewhere runs a command on another machine.
func elsewhere(machine, command string, stdin, stdout *os.File) int {
	address, ok := strings.CutPrefix(machine, "root@")
	if !ok {
		return failed(machine + " is not of the form root@ADDRESS")
	}
	got, err := call(filepath.Join(labDirectory, address), request{Command: command}, []*os.File{stdin, stdout, os.Stderr}, nil)
	if err != nil {
		return failed(address + ": " + err.Error())
	}
	return got.Code
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func failed(text string) int {
	fmt.Fprintln(os.Stderr, text)
	return 255
}
