package checkpoint

import "path/filepath"

// Step is something that a node does once on its way, or again after it was stopped.
type Step string

// The steps of a node's first start.
const (
	// MakeConfiguration makes the node's keys and the sealed configuration.
	MakeConfiguration Step = "make-configuration"
	// WrapDataKey writes the data key, wrapped by NUK and CUK.
	WrapDataKey Step = "wrap-data-key"
	// WriteRecovery writes the recovery file.
	WriteRecovery Step = "write-recovery"
	// SealCUK seals the CUK by the TPM.
	SealCUK Step = "seal-cuk"
	// BeginFormat keeps that the volume is being formatted.
	BeginFormat Step = "begin-format"
	// FormatVolume formats the volume.
	FormatVolume Step = "format-volume"
	// MarkVolume writes onto the open volume whose it is.
	MarkVolume Step = "mark-volume"
	// ForgetKeys keeps that the volume is made, and the CUK and the data key in the sealed configuration no more.
	ForgetKeys Step = "forget-keys"
	// ConsumeParameters keeps that the parameters have made a node.
	ConsumeParameters Step = "consume-parameters"
	// EnterFormed keeps that the store is made.
	EnterFormed Step = "enter-formed"
	// EnterMember keeps that the node is a member of its cluster.
	EnterMember Step = "enter-member"
)

// The steps of every later start; OpenVolume is one of the first start too.
const (
	// Unseal opens the sealed configuration.
	Unseal Step = "unseal-configuration"
	// RaiseIncarnation keeps the number of this start of the core.
	RaiseIncarnation Step = "raise-incarnation"
	// GetCUK asks the sources of the CUK.
	GetCUK Step = "get-cuk"
	// OpenDataKey unwraps the data key.
	OpenDataKey Step = "open-data-key"
	// OpenVolume opens the volume.
	OpenVolume Step = "open-volume"
	// CloseVolume closes the volume.
	CloseVolume Step = "close-volume"
)

// The steps of what is done to the keys later on.
const (
	// RotateBegin keeps the keys that come, beside those that go.
	RotateBegin Step = "rotate-begin"
	// RotateWrap wraps the data key by the keys that come.
	RotateWrap Step = "rotate-wrap"
	// RotateSources gives the sources of the CUK, the recovery file among them, the keys that come.
	RotateSources Step = "rotate-sources"
	// RotateEnd forgets the keys that go.
	RotateEnd Step = "rotate-end"
	// Reseal seals the node's secrets anew.
	Reseal Step = "reseal"
	// ReplaceConfiguration writes what a recovery has given back over a sealed configuration that cannot be opened.
	ReplaceConfiguration Step = "replace-configuration"
)

// All are all steps: of a first start in their order, then of a later one, then those of what is done to the keys. They do not have those of files in them, of
// which there is one before and one after each replacement, and those that a kind of volume has by itself: whoever wants those too lets a node go its way with a
// log of the steps.
func All() []Step {
	return []Step{
		MakeConfiguration, WrapDataKey, WriteRecovery, SealCUK, BeginFormat, FormatVolume, OpenVolume, MarkVolume, ForgetKeys, ConsumeParameters,
		EnterFormed, EnterRegistered, EnterCommitting, KeepAssignment, EnterMember,
		Unseal, RaiseIncarnation, GetCUK, OpenDataKey, CloseVolume,
		EnterStore, LeaveStore, Disown, EraseKeys, EraseData,
		RotateBegin, RotateWrap, RotateSources, RotateEnd, Reseal, ReplaceConfiguration,
	}
}

// What the steps of files begin with, before the name of the file without its directory, and those of volumes, before what is done to the machine.
const (
	writePrefix   = "write:"
	writtenPrefix = "written:"
	volumePrefix  = "volume:"
)

// Volume is the step before a kind of volume changes something of the machine: "volume:mount".
func Volume(name string) Step { return Step(volumePrefix + name) }

// Write is the step before a file takes the place of an older one: its draft is there already.
func Write(path string) Step { return Step(writePrefix + filepath.Base(path)) }

// Written is the step after a file has taken the place of an older one for good.
func Written(path string) Step { return Step(writtenPrefix + filepath.Base(path)) }
