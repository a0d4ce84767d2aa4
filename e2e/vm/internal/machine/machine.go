package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Sizes of a machine's disks.
const (
	stateSize  = 512 << 20
	volumeSize = 512 << 20
)

// Machine is what stays of a machine when it is off: its disks and its TPMs.
type Machine struct {
	base      *Base
	directory string
	// boots counts how often it was switched on.
	boots int
}

// New makes a machine that was never switched on.
func (b *Base) New(ctx context.Context, name string) (*Machine, error) {
	m := &Machine{base: b, directory: filepath.Join(b.directory, name)}
	if err := os.Mkdir(m.directory, 0o700); err != nil {
		return nil, err
	}
	if err := makeDisk(ctx, m.StateImage(), "state", stateSize, ""); err != nil {
		return nil, err
	}
	return m, makeImage(m.VolumeImage(), volumeSize)
}

// StateImage is the image of the disk that is mounted at StateDirectory.
func (m *Machine) StateImage() string { return filepath.Join(m.directory, "state.img") }

// VolumeImage is the image of the disk Volume.
func (m *Machine) VolumeImage() string { return filepath.Join(m.directory, "volume.img") }

// Remove removes the machine, which is off.
func (m *Machine) Remove() error { return os.RemoveAll(m.directory) }

// Options say how a machine is switched on.
type Options struct {
	// TPM is the name of the TPM that it has: each has secrets of its own, and is made when it is used first. Empty: none.
	TPM string
	// Parameters is what qemu hands over as the node's parameters; nil: nothing.
	Parameters []byte
	// Clock is what the machine's clock says; zero: the time.
	Clock time.Time
}

// bootTimeout is how long a machine may take until it answers, by the clock of this machine: some ten seconds where nothing else runs.
const bootTimeout = 5 * time.Minute

// Boot switches the machine on, and returns when it answers. The test has to switch it off.
func (m *Machine) Boot(ctx context.Context, options Options) (_ *Guest, err error) {
	m.boots++
	g := &Guest{Begin: time.Now(), directory: filepath.Join(m.directory, strconv.Itoa(m.boots))}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the machine does not come up: %w; its console, at the end: %s", err, g.Console()), g.Kill())
		}
	}()
	if err := os.Mkdir(g.directory, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(g.directory, "qemu.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	arguments := m.arguments(g, options)
	if options.TPM != "" {
		more, err := m.startTPM(g, options.TPM, log)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, more...)
	}
	if options.Parameters != nil {
		file := filepath.Join(g.directory, "parameters")
		if err := os.WriteFile(file, options.Parameters, 0o600); err != nil {
			return nil, err
		}
		arguments = append(arguments, "-fw_cfg", "name=opt/dev.reeve/parameters,file="+file)
	}
	if g.qemu, err = start(log, m.base.qemu, arguments...); err != nil {
		return nil, err
	}
	return g, g.connect(ctx, bootTimeout)
}

// arguments are those of qemu, apart from the TPM and the parameters.
func (m *Machine) arguments(g *Guest, options Options) []string {
	disk := func(image, serial, more string) []string {
		return []string{
			"-drive", "if=none,id=" + serial + ",format=raw,file=" + image + more,
			"-device", "virtio-blk-pci,drive=" + serial + ",serial=" + serial,
		}
	}
	arguments := []string{
		// An emulated processor. It counts digests faster without AVX2, which is emulated piece by piece. The machine's time is that of its instructions, each of
		// which takes two nanoseconds: where this machine has much else to do, the other one is not slower by its own clock, which its programs measure what they wait
		// for by. While it has nothing to do, time passes as it does here.
		"-accel", "tcg,thread=single", "-icount", "shift=1,sleep=on", "-cpu", "max,-avx2", "-smp", "1", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-chardev", "file,id=console,path=" + g.consoleFile(), "-serial", "chardev:console",
		"-chardev", "socket,id=control,server=on,wait=off,path=" + g.socket("c"),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control,name=" + portName,
		"-kernel", m.base.kernel.image, "-initrd", m.base.initramfs,
		// The emulated timers are late where the machine is busy, which the kernel must not take for broken ones. Its tests of its own ciphers take longer than all
		// the rest of a boot.
		"-append", "console=ttyS0 panic=-1 quiet loglevel=4 no_timer_check tsc=unstable random.trust_cpu=on nowatchdog mitigations=off cryptomgr.notests",
	}
	arguments = append(arguments, disk(m.base.system, "system", ",readonly=on")...)
	arguments = append(arguments, disk(m.StateImage(), "state", "")...)
	arguments = append(arguments, disk(m.VolumeImage(), "volume", "")...)
	if !options.Clock.IsZero() {
		arguments = append(arguments, "-rtc", "base="+options.Clock.UTC().Format("2006-01-02T15:04:05"))
	}
	return arguments
}

// startTPM starts a TPM made of software, and returns qemu's arguments for it.
func (m *Machine) startTPM(g *Guest, name string, log io.Writer) ([]string, error) {
	state := filepath.Join(m.directory, "tpm-"+name)
	if err := os.Mkdir(state, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	socket := g.socket("t")
	var err error
	g.tpm, err = start(log, m.base.swtpm, "socket", "--tpm2", "--tpmstate", "dir="+state, "--ctrl", "type=unixio,path="+socket, "--flags", "not-need-init")
	if err != nil {
		return nil, err
	}
	// qemu does not wait for it.
	if err := g.tpm.awaitSocket(socket, bootTimeout); err != nil {
		return nil, err
	}
	return []string{"-chardev", "socket,id=tpm,path=" + socket, "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0"}, nil
}
