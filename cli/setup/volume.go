package setup

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/recovery"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// The forms that ParseVolume and ParseSeal take, for the help of flags.
const (
	VolumeForms = "plain, fscrypt (in an image of 8 GiB), fscrypt:SIZE (such as 20GiB), fscrypt:directory or luks:DEVICE"
	SealForms   = "file, tpm2 (PCR 7) or tpm2:PCR,PCR…"
)

// minImage is the smallest image that reeved makes, in bytes.
const minImage = 256 << 20

// maxPCR is the last of a TPM's platform configuration registers.
const maxPCR = 23

// ParseVolume reads the kind of a volume as a person gives it: one of VolumeForms. Empty is plain.
func ParseVolume(text string) (*nodev1.Volume, error) {
	kind, rest, has := strings.Cut(text, ":")
	switch {
	case kind == "" && !has, kind == "plain" && !has:
		return &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}}, nil
	case kind == "fscrypt" && !has:
		return fscrypt(&nodev1.FscryptVolume{Image: &nodev1.LoopImage{}}), nil
	case kind == "fscrypt" && rest == "directory":
		return fscrypt(&nodev1.FscryptVolume{}), nil
	case kind == "fscrypt":
		size, err := parseSize(rest)
		if err != nil {
			return nil, fault.Wrap(fault.Usage, err, fmt.Sprintf("--volume %s: %q is no size of an image", text, rest),
				"Give one such as 20GiB, at least 256MiB, or fscrypt:directory to have the file system encrypt the data directory itself.")
		}
		return fscrypt(&nodev1.FscryptVolume{Image: &nodev1.LoopImage{SizeBytes: &size}}), nil
	case kind == "luks" && filepath.IsAbs(rest):
		return &nodev1.Volume{Kind: &nodev1.Volume_Luks{Luks: &nodev1.LuksVolume{Device: filepath.Clean(rest)}}}, nil
	case kind == "luks":
		return nil, fault.New(fault.Usage, fmt.Sprintf("--volume %s names no block device", text),
			"Give an empty one by its absolute path, best one that stays: luks:/dev/disk/by-id/….")
	}
	return nil, fault.New(fault.Usage, "--volume "+text+" is no kind of volume", "Give one of: "+VolumeForms+".")
}

func fscrypt(volume *nodev1.FscryptVolume) *nodev1.Volume {
	return &nodev1.Volume{Kind: &nodev1.Volume_Fscrypt{Fscrypt: volume}}
}

// parseSize reads a size in bytes, or with the unit MiB, GiB or TiB.
func parseSize(text string) (int64, error) {
	unit := int64(1)
	for suffix, bytes := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = number, bytes
			break
		}
	}
	number, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return 0, err
	case number > math.MaxInt64/unit:
		return 0, fmt.Errorf("%s is too large", text)
	case number*unit < minImage:
		return 0, fmt.Errorf("%d bytes are too few", number*unit)
	}
	return number * unit, nil
}

// ParseSeal reads what protects the node's secrets as a person gives it: one of SealForms. Empty leaves the choice to reeved, which is a file.
func ParseSeal(text string) (*nodev1.Seal, error) {
	kind, rest, has := strings.Cut(text, ":")
	switch {
	case text == "":
		return nil, nil
	case kind == "file" && !has:
		return &nodev1.Seal{Sealer: &nodev1.Seal_File{File: &nodev1.FileSealer{}}}, nil
	case kind == "tpm2":
		tpm := &nodev1.Tpm2Sealer{}
		for _, number := range strings.Split(rest, ",") {
			if !has {
				break
			}
			pcr, err := strconv.ParseUint(number, 10, 32)
			if err != nil || pcr > maxPCR {
				return nil, fault.New(fault.Usage, fmt.Sprintf("--seal %s: %q is no register of a TPM", text, number), "Give numbers from 0 to 23, such as tpm2:7,11.")
			}
			tpm.Pcrs = append(tpm.Pcrs, uint32(pcr))
		}
		return &nodev1.Seal{Sealer: &nodev1.Seal_Tpm2{Tpm2: tpm}}, nil
	}
	return nil, fault.New(fault.Usage, "--seal "+text+" is no way to protect the node's secrets", "Give one of: "+SealForms+".")
}

// encrypted says whether what is on the volume is encrypted.
func encrypted(volume *nodev1.Volume) bool {
	return volume.GetFscrypt() != nil || volume.GetLuks() != nil
}

// checkRecovery refuses what reeved would: a volume that nothing opens once the machine's own key is lost, and a recipient that is none.
func checkRecovery(volume *nodev1.Volume, recipient string) error {
	if recipient == "" {
		if !encrypted(volume) {
			return nil
		}
		return fault.New(fault.Usage, "an encrypted volume needs a recovery key, which opens it when nothing else can",
			"Run `reeve recovery-key new FILE` where you keep the key, which is not this machine, and give the recipient (age1…) that it prints with --recovery-recipient.")
	}
	return recovery.CheckRecipient(recipient, "--recovery-recipient")
}
