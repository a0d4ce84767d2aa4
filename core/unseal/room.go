package unseal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what a Room works with.
type Config struct {
	Log hclog.Logger
	// Storage are the node's directories, which the core holds.
	Storage *storage.Storage
	// Parameters are those of the node.
	Parameters *nodev1.Parameters
	// Mark remembers beside the parameters that they made a node; nil: nothing does.
	Mark *params.Mark
	// Again lets parameters make a node that already made one.
	Again bool
	// Restore is the snapshot of which a new node is restored; nil: it is not.
	Restore *Restore
}

// Room is the node's volume and its keys.
type Room struct {
	config Config
	parts  parts
	// configurationForms and cukForms remember by which of its sealed forms a secret was opened; nil without a TPM.
	configurationForms, cukForms *forms
	store                        *seal.Store
	wrapped                      *keys.Store
	board                        board
	// offers are what Unlock has for the Open that waits.
	offers chan *offer
	// failed is closed when an Open has failed. No other follows it, so that nobody waits for what Unlock has.
	failed     chan struct{}
	failedOnce sync.Once

	// mu is held while steps are taken, and never while the room waits for a key.
	mu sync.Mutex
	// configuration is nil until it is known.
	configuration *seal.Configuration
	// kind is the volume; nil until the node has an ID.
	kind volume.Kind
	// cuk is the cluster's half, as long as the volume is open; nil if it is not known, since the volume was open when the core started.
	cuk *keys.Secret
	// id is the node's ID, as far as it is known. It is told while a step is taken, too.
	id atomic.Pointer[string]
	// open says that Open has returned, mine that this room has opened the volume, and so closes it.
	open, mine bool
	// sealed says that only Unlock opens the volume, left that an earlier core was asked for that, and may have left the volume open.
	sealed, left bool
	// unkept says that the configuration is what a recovery file held and is not on disk, since the TPM does not answer.
	unkept bool
	// incarnation is this start of the core, once its number is kept.
	incarnation *clusterv1.Incarnation
	started     event.Value[*clusterv1.Incarnation]
	// disowned says that the node was removed from its cluster; nil: it was not. It is told while a step is taken, too.
	disowned atomic.Pointer[Disowned]
	// stale says that cuk.json does not give the CUK back in the present state of the machine.
	stale bool
}

// New returns the room. It fails if what is in system/ can never be opened by these parameters, with or without the recovery key.
func New(config Config) (*Room, error) {
	parts, err := partsOf(config)
	if err != nil {
		return nil, err
	}
	return newRoom(config, parts)
}

func newRoom(config Config, parts parts) (*Room, error) {
	if config.Mark == nil {
		config.Mark = params.OpenMark("")
	}
	r := &Room{
		config: config, parts: parts, wrapped: keys.NewStore(config.Storage.VolumeKey()), offers: make(chan *offer), failed: make(chan struct{}),
		kind: parts.kind(""),
	}
	sealer := parts.sealer
	if parts.tpm != nil {
		r.configurationForms, r.cukForms = &forms{tpm: parts.tpm}, &forms{tpm: parts.tpm}
		sealer = r.configurationForms
	}
	r.store = seal.NewStore(config.Storage.Configuration(), sealer)
	// What was being written when an earlier core was stopped may hold keys that were to come, or those that went.
	files := config.Storage
	written := append(recovery.Files(files.Recovery()), files.Configuration(), files.VolumeKey(), files.CUK(), files.Consumed(), files.Incarnation(), files.Disowned())
	if err := storage.RemoveDrafts(written...); err != nil {
		return nil, err
	}
	removed, err := readDisowned(files.Disowned())
	if err != nil {
		return nil, err
	}
	if removed != nil {
		// There may be anything left of its keys, or nothing.
		r.disowned.Store(removed)
		r.id.Store(&removed.NodeID)
		r.kind = parts.kind(removed.NodeID)
	} else if err := r.look(); err != nil {
		return nil, err
	}
	r.sealed = r.encrypted() && there(config.Storage.Sealed())
	r.left = r.sealed
	r.board.begin(r.kind.Describe(), parts.sealer.Name(), r.fresh())
	r.refresh()
	return r, nil
}

// look reads what can be read without a key, and fails if nothing will ever open it.
func (r *Room) look() error {
	head, err := r.store.Head()
	switch {
	case err != nil:
		return r.hopeless(err)
	case head == nil && r.fresh():
		return r.checkParameters()
	case head == nil:
		return r.hopeless(r.missing())
	}
	if err := checkRestored(head, r.config.Storage.System, r.config.Restore); err != nil {
		return err
	}
	description := r.kind.Describe()
	if head.Sealer != r.parts.sealer.Name() {
		return &seal.UnreadableError{Path: r.config.Storage.Configuration(), Err: &seal.OtherSealerError{Sealed: head.Sealer, Wanted: r.parts.sealer.Name()}}
	}
	if head.VolumeKind != description.Kind {
		return &OtherKindError{Path: r.config.Storage.Configuration(), Made: head.VolumeKind, Wanted: description.Kind}
	}
	r.id.Store(&head.NodeID)
	r.kind = r.parts.kind(head.NodeID)
	return nil
}

// fresh says whether there is nothing of a node in system/.
func (r *Room) fresh() bool { return fresh(r.config.Storage.Layout) }

func fresh(layout storage.Layout) bool {
	for _, path := range []string{layout.Configuration(), layout.VolumeKey(), layout.Recovery(), layout.CUK()} {
		// A file that cannot be looked at is there.
		if there(path) {
			return false
		}
	}
	return true
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// missing is the error that a node without its sealed configuration has.
func (r *Room) missing() error {
	return &seal.UnreadableError{Path: r.config.Storage.Configuration(), Err: errors.New("it is missing, though other files of the node are beside it")}
}

// hopeless returns the error if neither time nor the recovery key can mend what it says of the sealed configuration.
func (r *Room) hopeless(err error) error {
	var version *storage.VersionError
	var sealer *seal.OtherSealerError
	switch {
	case errors.As(err, &version), errors.As(err, &sealer):
		// The file is as good as ever: another reeved, or the parameters as they were, open it. To write another one over it would lose what it holds.
		return err
	case r.encrypted() && there(r.config.Storage.Recovery()):
		return nil
	}
	return err
}

func (r *Room) encrypted() bool { return r.kind.Describe().KeySize > 0 }

// OtherKindError says that the parameters name another kind of volume than the node was made with.
type OtherKindError struct {
	// Path is the sealed configuration.
	Path string
	// Made is the kind that the node has, Wanted the one of the parameters.
	Made, Wanted storage.VolumeKind
}

func (e *OtherKindError) Error() string {
	return fmt.Sprintf("unseal: this node's volume is of the kind %s (%s says so), and its parameters say %s: put `volume` in the parameters back to %s; a volume is never changed to another kind",
		e.Made, e.Path, e.Wanted, e.Made)
}

// checkParameters refuses parameters that could make a node, but none that is safe to have.
func (r *Room) checkParameters() error {
	recipient := params.RecoveryRecipient(r.config.Parameters)
	switch {
	case !r.encrypted():
		return nil
	case recipient == "":
		return errNoRecipient
	}
	if err := recovery.Recipient(recipient); err != nil {
		return fmt.Errorf("unseal: recovery_recipient of the parameters: %w", err)
	}
	return nil
}

var errNoRecipient = errors.New("unseal: the parameters ask for an encrypted volume and name no recovery key: when the machine or its TPM changes, nothing would ever open it. " +
	"Make a recovery key (`reeve recovery-key new FILE`), keep the file offline, and put what it prints into recovery_recipient of the parameters")

// Status is what the node's status and its report to the cluster say of storage.
func (r *Room) Status() *event.Value[*clusterv1.StorageStatus] { return &r.board.status }

// NodeID is the node's ID; empty before the node has a key.
func (r *Room) NodeID() string {
	if id := r.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Opened is an open volume.
type Opened struct {
	// Configuration is what the node must know to start. Only Room.Update changes the one on disk, since keys may have been rotated meanwhile.
	Configuration *seal.Configuration
}

// opened is what Open returns. The keys of the volume stay with the room.
func (r *Room) opened() *Opened {
	c := *r.configuration
	c.NextNUK, c.CUK, c.Data, c.Ticket = nil, nil, nil, nil
	return &Opened{Configuration: &c}
}

// Update changes the sealed configuration (the phase, the owner), as one step with whatever else the room does to it. Secrets that are not in it any more
// are destroyed.
func (r *Room) Update(ctx context.Context, change func(*seal.Configuration)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return errLocked
	}
	if err := r.keep(ctx); err != nil {
		return err
	}
	before, next := *r.configuration, *r.configuration
	change(&next)
	joins := r.encrypted() && len(before.Owner) == 0 && len(next.Owner) > 0
	if joins {
		// First: a recovery file that names no owner says that the volume holds nothing of the cluster yet. A core that is stopped here is taken in once more.
		if err := r.rewriteRecovery(&next); err != nil {
			return fmt.Errorf("the recovery file cannot say yet that the node is a member, and the node is none before it does: %w", err)
		}
	}
	if err := r.save(ctx, func(c *seal.Configuration) { *c = next }); err != nil {
		return err
	}
	for _, secret := range []struct{ before, now *keys.Secret }{{before.CUK, r.configuration.CUK}, {before.Ticket, r.configuration.Ticket}} {
		if secret.before != secret.now {
			secret.before.Destroy()
		}
	}
	switch {
	case joins:
		r.refresh()
	case r.encrypted() && !sameCluster(before.Registration, next.Registration):
		// What the file says is enough to open the volume, on which a member has all that is newer.
		if err := r.rewriteRecovery(r.configuration); err != nil {
			r.config.Log.Warn("the recovery file still says by what the node found its cluster before: `reeve node keys rotate` writes it anew", "error", err)
		}
		r.refresh()
	}
	return nil
}

// sameCluster says whether two registrations find the cluster by the same means.
func sameCluster(a, b *seal.Registration) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.CAPins, b.CAPins, bytes.Equal) && slices.Equal(a.Curators, b.Curators)
}

// rewriteRecovery writes the recovery file with what a configuration says.
func (r *Room) rewriteRecovery(c *seal.Configuration) error {
	cuk := r.cuk
	if cuk == nil {
		// The volume was open when the core started. A node that is not a member yet has it all the same.
		cuk = r.configuration.CUK
	}
	if cuk == nil {
		return errors.New("the cluster's half of the volume's key is not known, since the volume was open already when reeved was started")
	}
	data, err := r.wrapped.Open(r.volume(), keys.Halves{NUK: r.configuration.NUK, CUK: cuk})
	if err != nil {
		return err
	}
	defer data.Destroy()
	return r.take(checkpoint.WriteRecovery, func() error { return r.writeRecoveryOf(c, r.configuration.NUK, cuk, data) })
}

// UseCUK calls a function with the cluster's half of the key of the volume of a node that the cluster is about to take in; with nothing, if the volume is not
// encrypted.
func (r *Room) UseCUK(use func(cuk []byte) error) error {
	return r.useSecret(use, r.encrypted(), "the cluster's half of the key of the volume", func(c *seal.Configuration) *keys.Secret { return c.CUK })
}

// UseTicket calls a function with the secret of the ticket of a node that registers.
func (r *Room) UseTicket(use func(secret []byte) error) error {
	return r.useSecret(use, true, "the ticket", func(c *seal.Configuration) *keys.Secret { return c.Ticket })
}

func (r *Room) useSecret(use func([]byte) error, needed bool, what string, of func(*seal.Configuration) *keys.Secret) error {
	if !needed {
		return use(nil)
	}
	r.mu.Lock()
	if !r.open {
		r.mu.Unlock()
		return errLocked
	}
	secret, err := of(r.configuration).Clone()
	r.mu.Unlock()
	if errors.Is(err, keys.ErrDestroyed) {
		return fmt.Errorf("unseal: %s is not in %s any more", what, r.config.Storage.Configuration())
	}
	if err != nil {
		return err
	}
	defer secret.Destroy()
	return secret.Use(use)
}

// save persists a changed configuration. If it cannot, the one in memory stays as it is on disk.
func (r *Room) save(ctx context.Context, change func(*seal.Configuration)) error {
	if err := r.keep(ctx); err != nil {
		return err
	}
	next := *r.configuration
	change(&next)
	if err := r.store.Save(ctx, &next); err != nil {
		return err
	}
	*r.configuration = next
	return nil
}

// take takes a step. It is the only way to do anything that lasts.
func (r *Room) take(step checkpoint.Step, do func() error) error {
	r.board.update(func(s *clusterv1.StorageStatus) { s.Step = string(step) })
	err := r.parts.at(step)
	if err == nil {
		err = do()
	}
	if err != nil {
		return fmt.Errorf("unseal: step %s: %w", step, err)
	}
	r.board.update(func(s *clusterv1.StorageStatus) { s.Step = "" })
	return nil
}

// volume is which volume the data key is wrapped for.
func (r *Room) volume() keys.Volume {
	return keys.Volume{ClusterID: r.configuration.ClusterID, NodeID: r.configuration.NodeID(), Kind: string(r.configuration.VolumeKind)}
}

// known takes a configuration for the node's.
func (r *Room) known(c *seal.Configuration) {
	id := c.NodeID()
	r.configuration = c
	r.id.Store(&id)
	r.kind = r.parts.kind(id)
}

// RecoveryFile is what the RPC GetRecoveryFile answers.
func (r *Room) RecoveryFile() (*nodev1.GetRecoveryFileResponse, error) {
	file, recipient, err := recovery.Read(r.config.Storage.Recovery())
	switch {
	case errors.Is(err, fs.ErrNotExist) && !r.parts.kind("").Describe().Encrypted:
		return nil, status.Error(codes.NotFound, "there is no recovery file: the volume of this node is not encrypted")
	case errors.Is(err, fs.ErrNotExist):
		return nil, status.Errorf(codes.NotFound, "there is no recovery file %s: restore it from a copy; while the volume is open, `reeve node keys rotate` writes it anew", r.config.Storage.Recovery())
	case err != nil:
		return nil, status.Errorf(codes.DataLoss, "the recovery file %s cannot be used: %v: unlock with a copy of it; while the volume is open, `reeve node keys rotate` writes it anew", r.config.Storage.Recovery(), err)
	}
	return &nodev1.GetRecoveryFileResponse{File: file, Recipient: recipient}, nil
}

var errLocked = status.Error(codes.FailedPrecondition, "the volume of this node is locked: open it first, with `reeve node unlock`")
