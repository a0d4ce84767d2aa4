package tpm2

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/sys/unix"
)

// The errors that the node decides by.
var (
	// ErrUnavailable: the TPM is missing, does not answer or reports a failure. A retry may help.
	ErrUnavailable = errors.New("tpm2: the TPM is not available")
	// ErrChanged: this TPM sealed the secret, but a register has another value now. The error is a *ChangedError.
	ErrChanged = errors.New("tpm2: the machine is not in the state in which the secret was sealed")
	// ErrOtherTPM: another TPM sealed the secret, or this one was cleared.
	ErrOtherTPM = errors.New("tpm2: the secret was sealed by another TPM, or this one was cleared since")
	// ErrStorageKey: the TPM has another storage key than before. Nothing was sealed.
	ErrStorageKey = errors.New("tpm2: the TPM has another storage key than the one that this reeved used before")
	// ErrDamaged: the sealed form was changed. No TPM opens it.
	ErrDamaged = errors.New("tpm2: the sealed form is damaged")
)

// wayOut is what to do when the TPM does not open what it sealed.
const wayOut = "open the node with the recovery key (`reeve node unlock`), then seal it anew (`reeve node reseal`)"

// Change is a register whose value changed since the secret was sealed.
type Change struct {
	PCR uint32
	// Sealed is the value that the secret is sealed to, Now the current one.
	Sealed, Now []byte
}

// ChangedError is ErrChanged with the registers that changed.
type ChangedError struct{ Changes []Change }

func (e *ChangedError) Error() string {
	var text strings.Builder
	text.WriteString(ErrChanged.Error())
	for i, change := range e.Changes {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&text, "%sPCR %d (%s) was %s and is %s", separator, change.PCR, meaning(change.PCR), hex.EncodeToString(change.Sealed), hex.EncodeToString(change.Now))
	}
	fmt.Fprintf(&text, ": start the machine as it was, or, if you changed it, %s", wayOut)
	return text.String()
}

// Is makes errors.Is(e, ErrChanged) true.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// meaning names what a PC measures into a register (TCG PC Client Platform Firmware Profile), so that the operator knows where to look.
func meaning(pcr uint32) string {
	switch pcr {
	case 0:
		return "firmware"
	case 1:
		return "firmware settings"
	case 2:
		return "firmware of extension cards"
	case 3:
		return "settings of extension cards"
	case 4:
		return "boot loader"
	case 5:
		return "partition table and boot settings"
	case 6:
		return "the maker's own"
	case 7:
		return "Secure Boot"
	case 8, 9:
		return "kernel, its command line and initrd"
	case 10:
		return "files, by the kernel's IMA"
	case 11:
		return "unified kernel image"
	case 12:
		return "kernel command line and credentials"
	case 13:
		return "system extensions"
	case 14:
		return "shim's keys"
	case 15:
		return "system identity"
	default:
		return "the system's own"
	}
}

// lineError says that a command or its answer did not get through.
type lineError struct {
	text string
	err  error
}

func (e *lineError) Error() string {
	if e.err == nil {
		return e.text
	}
	return e.text + ": " + e.err.Error()
}

func (e *lineError) Unwrap() error { return e.err }

// strangeError says that an answer is invalid or not authentic.
type strangeError struct{ text string }

func (e *strangeError) Error() string { return e.text }

// ownError is an error of this process, not of the TPM.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }
func (e *ownError) Unwrap() error { return e.err }

// commandError names the command that failed.
type commandError struct {
	command string
	err     error
}

func (e *commandError) Error() string { return e.command + ": " + e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// in adds the command to an error, once.
func in(command string, err error) error {
	var named *commandError
	if err == nil || errors.As(err, &named) {
		return err
	}
	return &commandError{command, err}
}

// full reports whether the TPM has no space for another object or session.
func full(err error) bool {
	for _, code := range []tpm2.TPMRC{tpm2.TPMRCObjectMemory, tpm2.TPMRCSessionMemory, tpm2.TPMRCMemory, tpm2.TPMRCObjectHandles, tpm2.TPMRCSessionHandles} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// explain maps any error to one that callers decide by, and says what to do.
func (s *Sealer) explain(ctx context.Context, err error) error {
	var own *ownError
	var line *lineError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrChanged), errors.Is(err, ErrOtherTPM), errors.Is(err, ErrStorageKey), errors.Is(err, ErrDamaged):
		return err
	case errors.As(err, &own):
		return fmt.Errorf("tpm2: %w", own.err)
	case errors.As(err, &line) && ctx.Err() != nil:
		// The caller gave up; the TPM does not hang.
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, s.device, ctx.Err())
	}
	return fmt.Errorf("%w: %s: %w: %s", ErrUnavailable, s.device, err, remedy(err))
}

// remedy says what may help.
func remedy(err error) string {
	var code tpm2.TPMRC
	var line *lineError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return "switch the TPM on in the machine's firmware setup, load its driver, or name the right device in the parameters"
	case errors.Is(err, fs.ErrPermission):
		return "let the user of reeved read and write it"
	case errors.Is(err, unix.EBUSY):
		return "another program holds it: stop that program, or use /dev/tpmrm0, which several programs can use"
	case errors.Is(err, unix.ECONNREFUSED):
		return "start the software TPM that listens there"
	case errors.Is(err, tpm2.TPMRCLockout):
		return "there were too many wrong authorizations: wait until the lockout ends, or end it (`tpm2_dictionarylockout --clear-lockout`)"
	case errors.Is(err, tpm2.TPMRCBadAuth), errors.Is(err, tpm2.TPMRCAuthFail), errors.Is(err, tpm2.TPMRCHierarchy):
		return "its owner hierarchy has a password or is switched off: remove the password (`tpm2_changeauth -c owner`), or switch it on in the firmware setup"
	case errors.Is(err, tpm2.TPMRCInitialize), errors.Is(err, tpm2.TPMRCFailure), errors.Is(err, tpm2.TPMRCReboot), errors.Is(err, tpm2.TPMRCUpgrade):
		return "switch the machine off and on; if that does not help, the TPM is broken"
	case full(err):
		return "stop the programs that use it, or switch the machine off and on"
	case errors.As(err, &code):
		return "try again; if that does not help, switch the machine off and on"
	case errors.As(err, &line):
		return "try again; if that does not help, test the TPM (`tpm2_selftest --fulltest`), and switch the machine off and on"
	}
	// The rest are answers that cannot be parsed or are not authentic.
	return "it is not a TPM 2.0, it is broken, or something between the processor and it changes the traffic"
}
