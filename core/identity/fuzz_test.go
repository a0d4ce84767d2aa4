package identity_test

import (
	"crypto/ed25519"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/identity"
)

// Whatever the files of certificates hold, the room opens with certificates that are good, or says which file is not.
func FuzzCertificates(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate(f, key)})
	for _, seed := range [][]byte{good, append(good[:len(good):len(good)], good...), good[:len(good)/2], nil, []byte("\n \n"), []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("\x00\xff")} {
		f.Add(seed, good)
		f.Add(good, seed)
	}
	dir := f.TempDir()
	ca, svid := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "svid.pem")
	f.Fuzz(func(t *testing.T, authority, own []byte) {
		for path, content := range map[string][]byte{ca: authority, svid: own} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		room, err := identity.New(identity.Config{
			Log: hclog.NewNullLogger(), Directory: dir, Key: key, ClusterID: "c1", Owner: make([]byte, ed25519.PublicKeySize), Member: true,
		})
		if err != nil {
			if !strings.Contains(err.Error(), ca) {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		id, _ := room.Identity().Get()
		if len(id.CA) == 0 {
			t.Error("a member without a CA")
		}
		if id.SVID != nil && !key.Public().(ed25519.PublicKey).Equal(id.SVID.Leaf.PublicKey) {
			t.Error("the SVID is another one's")
		}
	})
}
