package tpm2_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// Nothing that a TPM does leaves a goroutine behind.
func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// secretOf returns a secret of some size, and what is in it.
func secretOf(t testing.TB, size int) (*keys.Secret, []byte) {
	t.Helper()
	secret, err := keys.NewSecret(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(secret.Destroy)
	var content []byte
	if err := secret.Use(func(c []byte) error { content = bytes.Clone(c); return nil }); err != nil {
		t.Fatal(err)
	}
	return secret, content
}

// sealed seals a new secret, which must work.
func sealed(t testing.TB, s *tpm2.Sealer) (json.RawMessage, *keys.Secret) {
	t.Helper()
	secret, _ := secretOf(t, keys.Size)
	form, err := s.Seal(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	return form, secret
}

// unseals unseals what must be the secret.
func unseals(t testing.TB, s *tpm2.Sealer, form json.RawMessage, want *keys.Secret) {
	t.Helper()
	got, err := s.Unseal(t.Context(), form)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Destroy()
	if !got.Equal(want) {
		t.Fatal("unsealed another secret")
	}
}

// descriptors is how many files this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// inside reports whether a place is in a mapping.
func inside(place uintptr, mapping []byte) bool {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))
	return place >= begin && place < begin+uintptr(len(mapping))
}

// report reports the median and what 19 of 20 stay below.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*19/20])/1e6, "p95-ms")
}
