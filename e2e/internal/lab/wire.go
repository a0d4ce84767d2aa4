package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// request is what the first process of a machine is asked for. A command comes with the descriptors of its standard input, output and error.
type request struct {
	// Command is run by a shell.
	Command string `json:"command,omitempty"`
	// Terminal says that the standard input is the terminal of the command.
	Terminal bool `json:"terminal,omitempty"`
	// Unit is what is asked for of a unit: a verb of systemctl, the name of the unit, and for `kill` the signal.
	Unit []string `json:"unit,omitempty"`
	// Boot starts what starts with the machine: its network is there now.
	Boot bool `json:"boot,omitempty"`
}

// answer is how it ended.
type answer struct {
	// Code is that of the command; -1 if a signal ended it.
	Code int `json:"code"`
	// Error says why the request could not be done.
	Error string `json:"error,omitempty"`
}

// maxMessage is the longest request or answer.
const maxMessage = 64 << 10

// call asks the first process of a machine, at its socket. Closing the connection, which cancel is given for, ends the command.
func call(socket string, asked request, files []*os.File, opened func(close func())) (answer, error) {
	connection, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = connection.Close() }()
	if opened != nil {
		opened(func() { _ = connection.Close() })
	}
	encoded, err := json.Marshal(asked)
	if err != nil {
		return answer{}, err
	}
	var rights []byte
	if len(files) > 0 {
		descriptors := make([]int, len(files))
		for i, file := range files {
			descriptors[i] = int(file.Fd())
		}
		rights = unix.UnixRights(descriptors...)
	}
	if _, _, err := connection.WriteMsgUnix(encoded, rights, nil); err != nil {
		return answer{}, err
	}
	message := make([]byte, maxMessage)
	n, err := connection.Read(message)
	if err != nil {
		return answer{}, fmt.Errorf("the machine ended, or the command was cancelled: %w", err)
	}
	var got answer
	if err := json.Unmarshal(message[:n], &got); err != nil {
		return answer{}, err
	}
	if got.Error != "" {
		return got, errors.New(got.Error)
	}
	return got, nil
}

// receive reads a request and its descriptors.
func receive(connection *net.UnixConn) (request, []*os.File, error) {
	message, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(3*4))
	n, rightsLength, _, _, err := connection.ReadMsgUnix(message, rights)
	if err != nil {
		return request{}, nil, err
	}
	var files []*os.File
	controls, err := unix.ParseSocketControlMessage(rights[:rightsLength])
	if err != nil {
		return request{}, nil, err
	}
	for _, control := range controls {
		descriptors, err := unix.ParseUnixRights(&control)
		if err != nil {
			return request{}, files, err
		}
		for _, descriptor := range descriptors {
			unix.CloseOnExec(descriptor)
			files = append(files, os.NewFile(uintptr(descriptor), "given"))
		}
	}
	var asked request
	err = json.Unmarshal(message[:n], &asked)
	return asked, files, err
}
