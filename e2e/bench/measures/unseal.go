package measures

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	"github.com/reeveproject/reeve/e2e/bench"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// unseal measures the Room of core/unseal, which is the part of the core that takes a node to its open volume: from the directories, which are locked, to the
// end of Open. In between it reads its files, a TPM (swtpm) opens the configuration and the CUK, the wrapping key is derived, and the volume is opened.
func (b *Bed) unseal(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(3, 120)
	n, err := b.newNode(storage.Fscrypt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	tpm, socket, err := startTPM(ctx, n.at)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tpm.stop()) }()
	parameters := n.parameters(n.owner.Public().(ed25519.PublicKey))
	parameters.Seal = &nodev1.Seal{Sealer: &nodev1.Seal_Tpm2{Tpm2: &nodev1.Tpm2Sealer{Device: socket}}}
	// The first time makes the volume.
	say("%d times", count)
	var samples []float64
	for i := range 1 + warm + count {
		took, err := unsealed(ctx, parameters)
		if err != nil {
			return nil, err
		}
		if i > warm {
			samples = append(samples, took)
		}
	}
	result := bench.Result{
		What: "core/unseal's Room, from system/ to the open volume: read, two unsealings by swtpm, derive, open fscrypt in an image", Unit: "ms",
		Notes: []string{"in the process of the harness; a TPM that is a chip is slower than swtpm"},
	}
	result.Name = "open, p50"
	half := bench.OfSamples(result, bench.P50, bench.AtMost(300), samples)
	result.Name = "open, p99"
	return []bench.Result{half, bench.OfSamples(result, bench.P99, bench.Any(), samples)}, nil
}

// unsealed opens the volume of a node and closes it again: how long the first took.
func unsealed(ctx context.Context, parameters *nodev1.Parameters) (took float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	held, err := storage.Open(storage.NewLayout(parameters.GetDirectories()))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	room, err := unseal.New(unseal.Config{Log: hclog.NewNullLogger(), Storage: held, Parameters: parameters})
	if err != nil {
		return 0, err
	}
	if _, err := room.Open(ctx); err != nil {
		problem, _ := room.Status().Get()
		return 0, fmt.Errorf("%w: %v", err, problem)
	}
	took = milliseconds(time.Since(begun))
	return took, room.Close(context.WithoutCancel(ctx), false)
}

// startTPM starts a TPM in software and returns when it listens, with its socket.
func startTPM(ctx context.Context, at place) (*process, string, error) {
	program, err := exec.LookPath("swtpm")
	if err != nil {
		return nil, "", fmt.Errorf("%w: swtpm is not installed (apt-get install swtpm)", bench.ErrCannotRun)
	}
	socket := filepath.Join(at.run, "tpm")
	p, err := startProcess(filepath.Join(at.work, "swtpm.log"), nil, program, "socket", "--tpm2", "--tpmstate", "dir="+at.work,
		"--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return p, socket, conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return nil, "", fmt.Errorf("swtpm has ended: %w\n%s", p.err, p.lastLines())
		case <-ctx.Done():
			return nil, "", errors.Join(fmt.Errorf("swtpm does not listen: %w", err), p.stop())
		}
	}
}
