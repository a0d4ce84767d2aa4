//go:build soak

package vm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// extend changes PCR 7, as a change of Secure Boot does: always in the same way, so that a machine can be brought into the same state again.
func (g *guest) extend(t *testing.T) {
	t.Helper()
	// TPM2_PCR_Extend of one SHA-256 digest with an empty password.
	command := strings.Join([]string{
		"8002", "00000041", "00000182", "00000007", // sessions, 65 bytes, the command, PCR 7
		"00000009", "40000009", "0000", "00", "0000", // TPM_RS_PW with nothing
		"00000001", "000b", strings.Repeat("a5", 32), // one digest
	}, "")
	encoded, err := hex.DecodeString(command)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.WriteFile(t.Context(), "/tmp/extend", encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	want := extended(g.register(t))
	// Not by the resource manager, which reeved uses: a command that is not read to the end of its answer would hold it.
	g.sh(t, "dd if=/tmp/extend of=/dev/tpm0 bs=4096 count=1")
	if got := g.register(t); !bytes.Equal(got, want) {
		t.Fatalf("PCR 7 is %x, want %x", got, want)
	}
}

// register returns PCR 7.
func (g *guest) register(t *testing.T) []byte {
	t.Helper()
	value, err := hex.DecodeString(strings.TrimSpace(g.sh(t, "cat /sys/class/tpm/tpm0/pcr-sha256/7")))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// extended is what extend makes of a register.
func extended(register []byte) []byte {
	sum := sha256.Sum256(append(bytes.Clone(register), bytes.Repeat([]byte{0xa5}, 32)...))
	return sum[:]
}
