package unseal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// incarnationVersion is the version of the format of the file with the number of the newest start.
	incarnationVersion = 1
	// nonceSize is the length of a nonce, by which two machines with the same number are told apart.
	nonceSize = 16
)

// incarnationFile is the content of incarnation.json. It is not part of the sealed configuration, so that a start is counted too where that cannot be written,
// since the TPM does not answer, and so that what the node cannot live without is not written anew at every start. It is no secret, and who changes it has the
// cluster refuse the node, as with an older copy of the disk.
type incarnationFile struct {
	NodeID string `json:"node_id"`
	Number uint64 `json:"number"`
}

// Raise keeps the number of this start of the core, which is one higher than that of the start before, and returns it with its nonce: the same as long as the
// core lives. Nothing may use it before it is kept, so where that fails there is none; it may be tried again. A number that is lost begins anew: the cluster
// then takes the node for a copy, and its owner says that it is none.
func (r *Room) Raise() (*clusterv1.Incarnation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.incarnation != nil {
		return r.incarnation, nil
	}
	if r.configuration == nil {
		return nil, errLocked
	}
	path, id := r.config.Storage.Incarnation(), r.configuration.NodeID()
	var last incarnationFile
	err := storage.ReadDocument(path, incarnationVersion, &last)
	var newer *storage.VersionError
	switch {
	case err == nil && last.NodeID != id, errors.Is(err, fs.ErrNotExist):
		last = incarnationFile{}
	case errors.As(err, &newer):
		return nil, fmt.Errorf("unseal: how often the node was started cannot be read from %s: %w", path, err)
	case err != nil:
		r.config.Log.Error("how often the node was started is not known, and is counted anew: the cluster may want to hear from its owner that it is the right one (`reeve node accept`)",
			"file", path, "error", err)
		last = incarnationFile{}
	}
	next := &clusterv1.Incarnation{Number: last.Number + 1, Nonce: make([]byte, nonceSize)}
	// It never fails.
	_, _ = rand.Read(next.Nonce)
	err = r.take(checkpoint.RaiseIncarnation, func() error {
		return storage.WriteDocument(path, incarnationVersion, incarnationFile{NodeID: id, Number: next.GetNumber()}, 0o600)
	})
	if err != nil {
		return nil, err
	}
	r.incarnation = next
	r.started.Set(next)
	return next, nil
}
