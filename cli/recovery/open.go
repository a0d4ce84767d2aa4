package recovery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// maxFile bounds a recovery file: it holds some keys and a few lines.
const maxFile = 1 << 20

// File is the recovery file of a node, encrypted.
type File struct {
	// Recipient is the public half of the recovery key that it is for; empty: the node does not know.
	Recipient string
	// Content is the file.
	Content []byte
}

// Get asks a node for its recovery file. node names it, for errors.
func Get(ctx context.Context, api nodev1.NodeServiceClient, node string) (File, error) {
	var response *nodev1.GetRecoveryFileResponse
	err := target.Anew(ctx, func() (err error) {
		response, err = api.GetRecoveryFile(ctx, &nodev1.GetRecoveryFileRequest{})
		return err
	})
	if status.Code(err) == codes.NotFound {
		return File{}, fault.Wrap(fault.NotFound, err, node+" has no recovery file",
			"Its volume is not encrypted, or it was set up without a recovery key: `reeve status` says which, and what else may open it.")
	}
	if err != nil {
		return File{}, fault.FromRPC(err, "cannot read the recovery file of "+node, "Run `reeve status` to see how the node is.")
	}
	if len(response.GetFile()) > maxFile {
		return File{}, fault.New(fault.Failed, "the recovery file of "+node+" is too large to be one", "See system/recovery.age on the node.")
	}
	return File{Recipient: response.GetRecipient(), Content: response.GetFile()}, nil
}

// Open returns what is in a recovery file, which the caller overwrites when it is done with it. node and key name where both are from, for errors.
func (k *Key) Open(file File, node, key string) ([]byte, error) {
	damaged := func(err error) error {
		return fault.Wrap(fault.Failed, err, "the recovery file of "+node+" is damaged",
			"Put a copy of it back as system/recovery.age on the node, if there is one. The recovery key is right.")
	}
	plain, err := age.Decrypt(bytes.NewReader(file.Content), k.identity)
	var wrong *age.NoIdentityMatchError
	switch {
	case errors.As(err, &wrong):
		recipient := file.Recipient
		if recipient == "" {
			recipient = "another one"
		}
		if recipient == k.Recipient {
			return nil, fault.New(fault.Failed, "the recovery file of "+node+" says that it is for "+recipient+", and that key does not open it: it is damaged",
				"Put a copy of it back as system/recovery.age on the node, if there is one.")
		}
		return nil, fault.New(fault.Refused, "the recovery key in "+key+" is a wrong one: the recovery file of "+node+" is for "+recipient+", and this key is "+k.Recipient,
			"Give the recovery key whose public half is "+recipient+".")
	case err != nil:
		return nil, damaged(err)
	}
	// What is in it is shorter than the file: one buffer that never grows, so that no copies are left behind.
	content := make([]byte, len(file.Content))
	n, err := readAll(plain, content)
	if err != nil {
		clear(content)
		return nil, damaged(err)
	}
	return content[:n], nil
}

// WrongKeyError says that something is sealed to another recovery key.
type WrongKeyError struct {
	// Recipient is the public half of the key that was tried.
	Recipient string
}

func (e *WrongKeyError) Error() string { return "it is not sealed to " + e.Recipient }

// Decrypt returns what is in a stream that is sealed by age. The error is a *WrongKeyError if it is not sealed to this key.
func (k *Key) Decrypt(sealed io.Reader) (io.Reader, error) {
	plain, err := age.Decrypt(sealed, k.identity)
	var wrong *age.NoIdentityMatchError
	if errors.As(err, &wrong) {
		return nil, &WrongKeyError{Recipient: k.Recipient}
	}
	return plain, err
}

// readAll reads a stream up to its end into a buffer. A stream of age that was cut off ends with io.ErrUnexpectedEOF, which io.ReadFull does not tell from
// one that is shorter than the buffer.
func readAll(from io.Reader, into []byte) (n int, err error) {
	for n < len(into) {
		read, err := from.Read(into[n:])
		n += read
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, errors.New("there is more in it than it is long")
}

// Unlock opens the volume of a node with a recovery key. It returns when the volume is open, with what remains to be done. node and from name the node and
// where the key is from, for errors.
func (k *Key) Unlock(ctx context.Context, api nodev1.NodeServiceClient, node, from string) (notes []string, err error) {
	file, err := Get(ctx, api, node)
	if err != nil {
		return nil, err
	}
	content, err := k.Open(file, node, from)
	if err != nil {
		return nil, err
	}
	defer clear(content)
	response, err := api.Unlock(ctx, &nodev1.UnlockRequest{Recovered: content})
	if err != nil {
		return nil, fault.FromRPC(err, "cannot unlock "+node, "Run `reeve status` to see what its volume needs.")
	}
	return response.GetNotes(), nil
}

// Wanted says whether a volume waits for the recovery key.
func Wanted(storage *clusterv1.StorageStatus) bool {
	switch storage.GetState() {
	case clusterv1.StorageState_STORAGE_STATE_SEALED:
		return true
	case clusterv1.StorageState_STORAGE_STATE_LOCKED:
		return slices.ContainsFunc(storage.GetSources(), func(source *clusterv1.CukSource) bool {
			return source.GetName() == Source && source.GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING
		})
	default:
		return false
	}
}

// Source is the name of the source of a CUK that waits for the recovery key.
const Source = "recovery"
