package tpmtest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// NewDevice puts a character device before the TPM: the far side of a terminal, which takes and gives bytes as they are.
func (p *TPM) NewDevice(behaviour Behaviour) *Line {
	p.t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		p.t.Skipf("cannot run: there are no terminals here: %v", err)
	}
	var path string
	var far int
	raw, err := near.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	var problem error
	if err := raw.Control(func(fd uintptr) { path, far, problem = terminal(int(fd)) }); err != nil || problem != nil {
		_ = near.Close()
		p.t.Skipf("cannot run: no terminal to be had: %v", errors.Join(err, problem))
	}
	l := newLine(p, path, behaviour)
	l.far = far
	l.done.Go(func() { l.serve(near) })
	p.t.Cleanup(func() {
		// A terminal that nobody has open hangs up, so the test holds it until here.
		_ = near.Close()
		l.stop()
		_ = unix.Close(far)
	})
	return l
}

// terminal makes a terminal that changes no byte, and opens its far side.
func terminal(near int) (path string, far int, err error) {
	if err := unix.IoctlSetPointerInt(near, unix.TIOCSPTLCK, 0); err != nil {
		return "", 0, err
	}
	number, err := unix.IoctlGetUint32(near, unix.TIOCGPTN)
	if err != nil {
		return "", 0, err
	}
	path = filepath.Join("/dev/pts", strconv.Itoa(int(number)))
	far, err = unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, err
	}
	settings, err := unix.IoctlGetTermios(far, unix.TCGETS)
	if err != nil {
		_ = unix.Close(far)
		return "", 0, err
	}
	settings.Iflag, settings.Oflag, settings.Lflag = 0, 0, 0
	settings.Cflag = settings.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	settings.Cc[unix.VMIN], settings.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(far, unix.TCSETS, settings); err != nil {
		_ = unix.Close(far)
		return "", 0, err
	}
	return path, far, nil
}

// Drain forgets answers that nobody took. A device that is opened anew has none, and a terminal, by which it is done here, keeps them.
func (l *Line) Drain() {
	if l.far >= 0 {
		_ = unix.IoctlSetInt(l.far, unix.TCFLSH, unix.TCIOFLUSH)
	}
}

// Stick has the kernel not come back from a write to the device, as from a command that the TPM does not end, until Unstick.
func (l *Line) Stick() { l.flow(unix.TCOOFF) }

// Unstick ends Stick.
func (l *Line) Unstick() { l.flow(unix.TCOON) }

func (l *Line) flow(action int) {
	if l.far >= 0 {
		_ = unix.IoctlSetInt(l.far, unix.TCXONC, action)
	}
}
