// Command hold makes all the secrets of a volume, does with them what a node does, writes them to its file descriptor 3 and waits: whoever looks at its memory then
// should not find them.
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
)

// chip keeps what it seals to itself, as a TPM does.
type chip struct{ kept *keys.Secret }

func (c *chip) Name() string { return "chip" }

func (c *chip) Seal(_ context.Context, secret *keys.Secret) (sealed json.RawMessage, err error) {
	c.kept, err = secret.Clone()
	return json.RawMessage(`"kept"`), err
}

func (c *chip) Unseal(context.Context, json.RawMessage) (*keys.Secret, error) { return c.kept.Clone() }

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	directory, recipient := os.Args[1], os.Args[2]
	ctx := context.Background()
	owner, node, err := ed25519.GenerateKey(nil)
	check(err)
	c := &seal.Configuration{
		ClusterID: "c1", NodeKey: node, JoinKey: node, Owner: owner, RecoveryRecipient: recipient, VolumeKind: "fscrypt", Location: "/srv", Phase: seal.Made,
		NUK: must(keys.NewSecret(keys.Size)), NextNUK: must(keys.NewSecret(keys.Size)), CUK: must(keys.NewSecret(keys.Size)), Data: must(keys.NewSecret(64)),
	}
	volume := keys.Volume{ClusterID: c.ClusterID, NodeID: c.NodeID(), Kind: "fscrypt"}
	halves := keys.Halves{NUK: c.NUK, CUK: c.CUK}
	wrapped := keys.NewStore(filepath.Join(directory, "volume-key.json"))
	check(wrapped.Add(volume, halves, c.Data))
	check(wrapped.Add(volume, keys.Halves{NUK: c.NextNUK, CUK: c.CUK}, c.Data))
	data := must(wrapped.Open(volume, halves))
	if !data.Equal(c.Data) {
		check(fmt.Errorf("another data key"))
	}
	sealer := &chip{}
	store := seal.NewStore(filepath.Join(directory, "configuration.json"), sealer)
	check(store.Save(ctx, c))
	loaded := must(store.Load(ctx))
	check(store.Reseal(ctx, sealer.Seal))
	loaded.Phase = seal.Member
	check(store.Replace(ctx, loaded))
	check(recovery.Write(filepath.Join(directory, "recovery.age"), recipient, &recovery.Recovered{
		ClusterID: c.ClusterID, NodeKey: node, JoinKey: node, Owner: owner, Kind: "fscrypt", Location: "/srv", NUK: c.NUK, CUK: c.CUK, Data: c.Data,
	}))
	// Straight out of the memory that they are in. The first is in ordinary memory, and is what has to be found.
	known := []byte("this is in ordinary memory ")
	known = append(known, known...)
	check(write(known))
	for _, secret := range []*keys.Secret{c.NUK, c.NextNUK, c.CUK, data, sealer.kept} {
		check(secret.Use(write))
	}
	check(unix.Close(3))
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(len(known))
}

// write writes the length and the content.
func write(content []byte) error {
	if _, err := unix.Write(3, []byte{byte(len(content))}); err != nil {
		return err
	}
	_, err := unix.Write(3, content)
	return err
}
