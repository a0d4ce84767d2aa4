//go:build soak

package unseal_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// seed of the histories: another one each time, which a failure prints.
	seed = "0"
	// histories is how many there are.
	histories = "100"
	// Every place and every way.
	damagesApart = 1
	waysApart    = 1
)

// TestUnsealingTime measures what opening a volume costs: to read, to ask the TPM twice, to derive, to mount.
func TestUnsealingTime(t *testing.T) {
	for name, withTPM := range inorder.Of(map[string]bool{"swtpm": true, "file": false}) {
		t.Run(name, func(t *testing.T) {
			b, _ := realBench(t, withTPM)
			b.up(t)
			recovered := b.recovered(t)
			if err := b.room.Close(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			var took []time.Duration
			for range 9 {
				begin := time.Now()
				if err := b.start(t); err != nil {
					t.Fatal(err)
				}
				o := b.open()
				if !withTPM {
					if _, err := b.room.Unlock(context.Background(), &nodev1.UnlockRequest{Recovered: bytes.Clone(recovered)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := o.wait(t); err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(begin))
				if err := b.room.Close(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(took)
			t.Logf("unsealing: p50 %s, least %s, most %s", took[len(took)/2], took[0], took[len(took)-1])
		})
	}
}
