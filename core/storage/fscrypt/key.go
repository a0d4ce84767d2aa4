package fscrypt

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage/volume"
)

// keyID is the kernel's identifier of a key, which the kernel derives from it.
type keyID [unix.FSCRYPT_KEY_IDENTIFIER_SIZE]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

func (id keyID) specifier() unix.FscryptKeySpecifier {
	s := unix.FscryptKeySpecifier{Type: unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER}
	copy(s.U[:], id[:])
	return s
}

// call makes an ioctl on a directory and closes the directory.
func call(path string, request uintptr, argument unsafe.Pointer) error {
	directory, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	_, _, code := unix.Syscall(unix.SYS_IOCTL, directory.Fd(), request, uintptr(argument))
	if err := directory.Close(); err != nil {
		return fmt.Errorf("fscrypt: %w", err)
	}
	switch code {
	case 0:
		return nil
	case unix.EOPNOTSUPP, unix.ENOTTY, unix.ENOSYS:
		return unsupported(path)
	}
	return code
}

func unsupported(path string) error {
	problem := &UnsupportedError{Path: path, Type: "its kind is unknown", Source: "an unknown device"}
	place, err := volume.DirectoryPlace(path)
	if err != nil {
		return problem
	}
	mounts, err := volume.MountsOf(place.Device)
	if err == nil && len(mounts) > 0 {
		problem.Type, problem.Source = mounts[0].Type, mounts[0].Source
	}
	return problem
}

// addKey adds the key to the kernel, for the file system of a directory.
func addKey(path string, key *keys.Secret) (keyID, error) {
	const head = int(unsafe.Sizeof(unix.FscryptAddKeyArg{}))
	var id keyID
	// The kernel reads the key right behind the argument, so both are in a Secret's memory.
	request, err := keys.Fill(head+KeySize, func(content []byte) error {
		argument := (*unix.FscryptAddKeyArg)(unsafe.Pointer(&content[0]))
		argument.Key_spec.Type = unix.FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER
		argument.Raw_size = KeySize
		err := key.Use(func(raw []byte) error {
			if len(raw) != KeySize {
				return fmt.Errorf("the key has %d bytes instead of %d: %w", len(raw), KeySize, volume.ErrWrongKey)
			}
			copy(content[head:], raw)
			return nil
		})
		if err != nil {
			return err
		}
		if err := call(path, unix.FS_IOC_ADD_ENCRYPTION_KEY, unsafe.Pointer(&content[0])); err != nil {
			return err
		}
		copy(id[:], argument.Key_spec.U[:])
		return nil
	})
	if err != nil {
		return keyID{}, fmt.Errorf("fscrypt: add the key of %s to the kernel: %w", path, err)
	}
	request.Destroy()
	return id, nil
}

// keyStatus returns one of unix.FSCRYPT_KEY_STATUS_*.
func keyStatus(path string, id keyID) (uint32, error) {
	argument := unix.FscryptGetKeyStatusArg{Key_spec: id.specifier()}
	if err := call(path, unix.FS_IOC_GET_ENCRYPTION_KEY_STATUS, unsafe.Pointer(&argument)); err != nil {
		return 0, fmt.Errorf("fscrypt: read the key status of %s: %w", path, err)
	}
	return argument.Status, nil
}

// removeKey removes the key from the kernel, whoever added it. busy says that open files stay readable until they are closed.
func removeKey(path string, id keyID) (busy bool, err error) {
	argument := unix.FscryptRemoveKeyArg{Key_spec: id.specifier()}
	err = call(path, unix.FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS, unsafe.Pointer(&argument))
	if errors.Is(err, unix.ENOKEY) {
		// It was already removed.
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fscrypt: remove the key of %s from the kernel: %w", path, err)
	}
	return argument.Removal_status_flags&unix.FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY != 0, nil
}

// setPolicy makes an empty directory encrypted with a key that the kernel must have.
func setPolicy(path string, id keyID) error {
	policy := newPolicy(id)
	err := call(path, unix.FS_IOC_SET_ENCRYPTION_POLICY, unsafe.Pointer(&policy))
	switch {
	case errors.Is(err, unix.ENOTEMPTY):
		return &volume.NotEmptyError{Location: path, Found: "a file that appeared before it was encrypted"}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOPKG):
		return fmt.Errorf("fscrypt: the kernel does not encrypt %s with AES-256-XTS and AES-256-CTS (it is built without them, or the file system's blocks are unsuitable): use the kind luks: %w", path, err)
	case err != nil:
		return fmt.Errorf("fscrypt: encrypt %s: %w", path, err)
	}
	return nil
}

func newPolicy(id keyID) unix.FscryptPolicyV2 {
	return unix.FscryptPolicyV2{
		Version: unix.FSCRYPT_POLICY_V2, Contents_encryption_mode: unix.FSCRYPT_MODE_AES_256_XTS, Filenames_encryption_mode: unix.FSCRYPT_MODE_AES_256_CTS,
		Flags: unix.FSCRYPT_POLICY_FLAGS_PAD_32, Master_key_identifier: id,
	}
}

// policyOf returns the ID of a directory's key; found is false if it is not encrypted. *volume.DamagedError if its policy is not that of setPolicy.
func policyOf(path string) (id keyID, found bool, err error) {
	argument := unix.FscryptGetPolicyExArg{Size: uint64(unsafe.Sizeof(unix.FscryptPolicyV2{}))}
	err = call(path, unix.FS_IOC_GET_ENCRYPTION_POLICY_EX, unsafe.Pointer(&argument))
	if errors.Is(err, unix.ENODATA) {
		return keyID{}, false, nil
	}
	if err != nil {
		return keyID{}, false, fmt.Errorf("fscrypt: read the encryption policy of %s: %w", path, err)
	}
	policy := (*unix.FscryptPolicyV2)(unsafe.Pointer(&argument.Policy[0]))
	if *policy != newPolicy(policy.Master_key_identifier) {
		return keyID{}, false, &volume.DamagedError{Location: path, Problem: fmt.Sprintf("it was encrypted by something else than reeved (policy %x): point the node to the right directory, or give it an empty one", argument.Policy[:argument.Size])}
	}
	return policy.Master_key_identifier, true, nil
}
