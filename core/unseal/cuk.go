package unseal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

// cukVersion is the version of the format of the file of the sealed CUK.
const cukVersion = 1

// cukFile is the content of cuk.json.
type cukFile struct {
	ClusterID string `json:"cluster_id"`
	NodeID    string `json:"node_id"`
	// ID names the CUK.
	ID string `json:"cuk"`
	// Sealed are its sealed forms.
	Sealed json.RawMessage `json:"sealed"`
}

// cukError says that the file of the sealed CUK does not give the CUK.
type cukError struct {
	path string
	err  error
}

func (e *cukError) Error() string {
	return fmt.Sprintf("unseal: the file of the sealed CUK, %s, does not give it: %v", e.path, e.err)
}

func (e *cukError) Unwrap() error { return e.err }

// errNoCUK says that there is no such file.
var errNoCUK = errors.New("there is none")

// readCUK reads the file of the sealed CUK of this node.
func (r *Room) readCUK(of keys.Volume) (cukFile, error) {
	path := r.config.Storage.CUK()
	var f cukFile
	err := storage.ReadDocument(path, cukVersion, &f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errNoCUK
	case err != nil:
	case f.ClusterID != of.ClusterID || f.NodeID != of.NodeID:
		err = fmt.Errorf("it is of node %s of cluster %s", f.NodeID, f.ClusterID)
	}
	if err != nil {
		return cukFile{}, &cukError{path: path, err: err}
	}
	return f, nil
}

// unsealCUK returns the CUK from its file.
func (r *Room) unsealCUK(ctx context.Context, of keys.Volume) (*keys.Secret, error) {
	f, err := r.readCUK(of)
	if err != nil {
		return nil, err
	}
	secret, err := r.cukForms.Unseal(ctx, f.Sealed)
	if err != nil {
		return nil, &cukError{path: r.config.Storage.CUK(), err: err}
	}
	if secret.ID() != f.ID {
		secret.Destroy()
		return nil, &cukError{path: r.config.Storage.CUK(), err: errors.New("it is damaged: it holds another key than it says")}
	}
	return secret, nil
}

// writeCUK seals a CUK by the TPM, for the present state of the machine and for a planned one.
func (r *Room) writeCUK(ctx context.Context, cuk *keys.Secret, planned map[uint32][]byte) error {
	forms, err := r.cukForms.sealFor(ctx, cuk, planned)
	if err != nil {
		return err
	}
	return r.keepCUK(cuk.ID(), forms)
}

func (r *Room) keepCUK(id string, forms json.RawMessage) error {
	return storage.WriteDocument(r.config.Storage.CUK(), cukVersion, cukFile{
		ClusterID: r.configuration.ClusterID, NodeID: r.configuration.NodeID(), ID: id, Sealed: forms,
	}, 0o400)
}

// wantsCUK says whether the TPM is to have the CUK.
func (r *Room) wantsCUK() bool {
	return r.parts.tpm != nil && r.encrypted() && allows(r.configuration.CUKSources, sourceTPM)
}

// removeCUK erases the file of the sealed CUK. Whether the disk keeps what was overwritten elsewhere nobody can say: what protects it then is the TPM, and a
// rotation of the CUK has it open nothing.
func (r *Room) removeCUK() error {
	if err := storage.Erase(r.config.Storage.CUK()); err != nil {
		return fmt.Errorf("unseal: remove the file of the sealed CUK: %w", err)
	}
	return nil
}
