package command

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/reeveproject/reeve/cli/doctor"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/setup"
)

// fitsMachine refuses a volume and a sealer that this machine does not have: reeved would say so as well, when nobody looks.
func (c *commands) fitsMachine(plan *setup.Plan) error {
	fscrypt, luks, tpm := plan.Volume.GetFscrypt(), plan.Volume.GetLuks(), plan.Seal.GetTpm2()
	if fscrypt == nil && luks == nil && tpm == nil {
		return nil
	}
	facts := doctor.Probe(doctor.Places{Data: filepath.Join(plan.State, "data"), Run: plan.Run})
	lacks := func(what string, err error, next string) error {
		return fault.Wrap(fault.Refused, err, "this machine has no "+what, next+" `reeve doctor` shows what it has.")
	}
	encrypted := fscrypt != nil || luks != nil
	switch {
	case encrypted && facts.UID != 0:
		return fault.New(fault.Refused, "an encrypted volume needs root: the node mounts it, and gives the kernel its key",
			"Run the command as root, or leave --volume out: the volume is then plain, which is NOT ENCRYPTED.")
	case fscrypt != nil && fscrypt.GetImage() != nil && facts.Loop != nil:
		return lacks("loop devices for an image", facts.Loop, "Give fscrypt:directory or luks:DEVICE.")
	case fscrypt != nil && fscrypt.GetImage() != nil && facts.MakeFilesystem != nil:
		return lacks("mkfs.ext4 for an image", facts.MakeFilesystem, "Install it (`apt-get install e2fsprogs`).")
	case fscrypt != nil && fscrypt.GetImage() == nil && facts.Data.Fscrypt != nil:
		return lacks("file system at "+facts.Data.At+" that encrypts directories", facts.Data.Fscrypt, "Give fscrypt, for an image, or put the state on another file system with --state.")
	case luks != nil && facts.Cryptsetup != nil:
		return lacks("cryptsetup", facts.Cryptsetup, "Install it (`apt-get install cryptsetup-bin`).")
	case luks != nil && facts.DMCrypt != nil:
		return lacks("dm-crypt", facts.DMCrypt, "Use another kernel, or give fscrypt.")
	case tpm != nil && tpm.GetDevice() == "" && facts.TPM.Version != "2":
		return fault.New(fault.Refused, "this machine has no TPM 2.0", "Switch it on in the firmware, or give --seal file. `reeve doctor` shows what it has.")
	case tpm != nil && tpm.GetDevice() == "" && facts.TPM.Usable != nil:
		return lacks("TPM that this user may use", facts.TPM.Usable, "Run the command as root.")
	}
	if luks != nil {
		return blockDevice(luks.GetDevice())
	}
	return nil
}

// blockDevice refuses what is no block device. Whether it is empty the node sees when it formats it.
func blockDevice(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fault.Wrap(fault.NotFound, err, "cannot put the volume on "+path, "Give an empty block device; `lsblk -f` shows those that there are.")
	}
	if info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0 {
		return fault.New(fault.Refused, path+" is no block device", "Give an empty one; `lsblk -f` shows those that there are. For a file, give --volume fscrypt.")
	}
	return nil
}
