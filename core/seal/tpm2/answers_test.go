package tpm2_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gotpm "github.com/google/go-tpm/tpm2"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal/tpm2"
	"github.com/reeveproject/reeve/core/seal/tpm2/tpmtest"
)

func TestNoTPM(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "tpm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	left := filepath.Join(short, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	secret, _ := secretOf(t, keys.Size)
	for path, text := range map[string]string{
		filepath.Join(directory, "none"): "firmware setup", file: "neither a character device nor a Unix socket", directory: "neither a character device nor",
		left: "start the software TPM", "/dev/null": "TPM2_PCR_Read",
	} {
		_, err := tpm2.New(tpm2.Config{Device: path, Timeout: patience}).Seal(t.Context(), secret)
		if !errors.Is(err, tpm2.ErrUnavailable) || !strings.Contains(err.Error(), text) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Whatever a TPM answers, the node gets an error in time and no secret.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{})
	f.Add(tpmtest.Code(gotpm.TPMRCSuccess))
	f.Add(bytes.Repeat(tpmtest.Code(gotpm.TPMRCRetry), 2))
	// What a TPM has answered to a seal.
	sealed, err := os.ReadFile("testdata/answers.bin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:len(sealed)-3])
	directory, err := os.MkdirTemp("", "tpm")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(directory) })
	content, err := keys.SecretOf(bytes.Repeat([]byte{1}, keys.Size))
	if err != nil {
		f.Fatal(err)
	}
	var count atomic.Int64
	f.Fuzz(func(t *testing.T, answers []byte) {
		path := filepath.Join(directory, fmt.Sprint(count.Add(1)))
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			command := make([]byte, 4096)
			for rest := answers; len(rest) > 0; {
				if _, err := conn.Read(command); err != nil {
					return
				}
				size := len(rest)
				if len(rest) >= 10 {
					size = min(size, max(10, int(binary.BigEndian.Uint32(rest[2:]))))
				}
				if _, err := conn.Write(rest[:size]); err != nil {
					return
				}
				rest = rest[size:]
			}
		}()
		s := tpm2.New(tpm2.Config{Device: path, Timeout: time.Second})
		if form, err := s.Seal(t.Context(), content); err == nil {
			t.Errorf("sealed %s by nothing", form)
		}
		_ = listener.Close()
		<-done
	})
}
