package measures

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// imageSize is how large the file system of an encrypted volume is made, as `reeve dev up` makes it.
const imageSize = 1 << 30

// needsRoot is the reason why an ordinary user cannot measure what an encrypted volume costs.
func needsRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	return fmt.Errorf("%w: only root mounts an encrypted volume", bench.ErrCannotRun)
}

// sealed compares the restart of a node whose volume waits for its owner with that of a node whose volume is plain: what the difference costs is that the node
// serves its API without the volume, the recovery key, the mount, and all that is read and written by way of the encryption.
func (b *Bed) sealed(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(1, 40)
	sealed, plain, end, err := b.bothKinds(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := errors.Join(sealed.stop(), plain.stop()); err != nil {
		return nil, err
	}
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, sealed.restarts("Home", home), plain.restarts("Home", home))
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "restart", What: "exec of reeved to Home, on fscrypt in an image, sealer file, unlocked by the recovery file", Against: "the same node with a plain volume", Unit: "ms",
		Notes: []string{"the harness unlocks as `reeve dev up` does: GetRecoveryFile, age, Unlock; the volume is closed by each stop, which is not in it"},
	}, bench.MedianRatio, bench.AtMost(1.2), pairs)}, nil
}

// bothKinds is a running node on an encrypted volume and one on a plain volume, until end is called.
func (b *Bed) bothKinds(ctx context.Context) (encrypted, plain *node, end func() error, err error) {
	if encrypted, err = b.runningNode(ctx, storage.Fscrypt); err != nil {
		return nil, nil, nil, err
	}
	if plain, err = b.runningNode(ctx, storage.Plain); err != nil {
		return nil, nil, nil, errors.Join(err, encrypted.close())
	}
	return encrypted, plain, func() error { return errors.Join(encrypted.close(), plain.close()) }, nil
}

// unlock opens the volume if it waits for its owner and has not got the recovery key yet.
func (n *node) unlock(ctx context.Context) error {
	if n.recovery == nil || n.unlocked || !waitsForOwner(n.last.GetStorage()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	api := nodev1.NewNodeServiceClient(n.local)
	file, err := api.GetRecoveryFile(ctx, &nodev1.GetRecoveryFileRequest{})
	if err != nil {
		return fmt.Errorf("the recovery file: %w", err)
	}
	decrypted, err := age.Decrypt(bytes.NewReader(file.GetFile()), n.recovery)
	if err != nil {
		return fmt.Errorf("the recovery file: %w", err)
	}
	recovered, err := io.ReadAll(decrypted)
	if err != nil {
		return fmt.Errorf("the recovery file: %w", err)
	}
	n.unlocked = true
	// The API without the volume ends when the volume is open, which may be before its answer is there: the status says how it went.
	if _, err = api.Unlock(ctx, &nodev1.UnlockRequest{Recovered: recovered}); err != nil && status.Code(err) != codes.Unavailable {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

func waitsForOwner(s *clusterv1.StorageStatus) bool {
	for _, source := range s.GetSources() {
		if source.GetName() == "recovery" && source.GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_WAITING {
			return s.GetState() == clusterv1.StorageState_STORAGE_STATE_LOCKED
		}
	}
	return false
}

// unmountLeft unmounts what a core that did not stop as it should has left, so that its files can be removed. Where there is nothing it does nothing.
func unmountLeft(layout storage.Layout) {
	for _, mounted := range []string{layout.Data, layout.ImageMount()} {
		_ = unix.Unmount(mounted, unix.MNT_DETACH)
	}
}
