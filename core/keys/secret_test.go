package keys_test

import (
	"bytes"
	"encoding/base64"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/keys"
)

// secretOf returns a secret of a text.
func secretOf(t testing.TB, text string) *keys.Secret {
	t.Helper()
	s, err := keys.SecretOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Destroy)
	return s
}

// random returns a secret of random bytes.
func random(t testing.TB, size int) *keys.Secret {
	t.Helper()
	s, err := keys.NewSecret(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Destroy)
	return s
}

func TestSecret(t *testing.T) {
	content := []byte("the content of a secret")
	was := string(content)
	s, err := keys.SecretOf(content)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, make([]byte, len(content))) {
		t.Errorf("what it was made from is still %q", content)
	}
	clone, err := s.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer clone.Destroy()
	if !s.Equal(clone) || s.ID() == "" || s.ID() != clone.ID() || s.Len() != len(was) {
		t.Errorf("a clone differs: %s and %s, %d bytes", s.ID(), clone.ID(), s.Len())
	}
	failed := errors.New("failed")
	if err := s.Use(func(content []byte) error {
		if string(content) != was {
			t.Errorf("content %q", content)
		}
		return failed
	}); !errors.Is(err, failed) {
		t.Errorf("the function's error became %v", err)
	}
	s.Destroy()
	s.Destroy()
	if err := s.Use(func([]byte) error { t.Error("a destroyed secret is used"); return nil }); !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("using a destroyed secret: %v", err)
	}
	if s.Equal(clone) || s.Equal(s) || s.ID() != "" || s.Len() != 0 {
		t.Error("a destroyed secret is equal to something, or still has a name")
	}
	if _, err := s.Clone(); !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("cloning a destroyed secret: %v", err)
	}
	if err := clone.Use(func(content []byte) error {
		if string(content) != was {
			t.Errorf("the clone has become %q", content)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestNoSecret(t *testing.T) {
	var none *keys.Secret
	none.Destroy()
	if err := none.Use(func([]byte) error { return nil }); !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("%v", err)
	}
	if !none.Equal(nil) || none.Equal(random(t, 1)) || random(t, 1).Equal(none) || none.ID() != "" || none.Len() != 0 {
		t.Error("no secret is taken for one")
	}
	for _, size := range []int{-1, 0, 1 << 30} {
		if s, err := keys.NewSecret(size); err == nil {
			s.Destroy()
			t.Errorf("a secret of %d bytes", size)
		}
	}
	if _, err := keys.SecretOf(nil); err == nil {
		t.Error("a secret without content")
	}
	if _, err := keys.Fill(1, func([]byte) error { return os.ErrDeadlineExceeded }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestSecretsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s := random(t, keys.Size)
		if seen[s.ID()] {
			t.Fatal("two new secrets have one ID")
		}
		seen[s.ID()] = true
	}
	if secretOf(t, "a").Equal(secretOf(t, "b")) || secretOf(t, "a").Equal(secretOf(t, "aa")) || secretOf(t, "a").ID() == secretOf(t, "b").ID() {
		t.Error("secrets of other content are equal")
	}
}

// Whatever prints or encodes a secret, a copy of one, or what holds one, gets no part of it.
func TestSecretIsNotPrinted(t *testing.T) {
	const text = "Kj4hX0pQz7Lm2Wv9"
	s := secretOf(t, text)
	holder := struct {
		Public  string
		Secret  *keys.Secret
		Copy    keys.Secret
		private *keys.Secret
		list    []*keys.Secret
	}{"public", s, *s, s, []*keys.Secret{s}}
	var out bytes.Buffer
	for _, value := range []any{s, *s, &s, holder, &holder, []*keys.Secret{s}, map[string]*keys.Secret{"s": s}, map[keys.Secret]bool{*s: true}, fmt.Errorf("with %v", s)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%b", "%o", "%T", "%U", "%c", "%t", "%e", "%100.3v"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		fmt.Fprintln(&out, value)
		if encoded, err := json.Marshal(value); err == nil {
			out.Write(encoded)
		}
		_ = gob.NewEncoder(&out).Encode(value)
		for _, asJSON := range []bool{false, true} {
			log := hclog.New(&hclog.LoggerOptions{Output: &out, JSONFormat: asJSON})
			log.Info("a message", "value", value)
			log.With("value", value).Info("another", "formatted", hclog.Fmt("%v %x", value, value))
		}
	}
	printed := out.String()
	if !strings.Contains(printed, "(secret)") || !strings.Contains(printed, "public") {
		t.Errorf("nothing is printed at all: %s", printed)
	}
	raw := []byte(text)
	numbers := strings.Trim(fmt.Sprintf("%d", raw[:4]), "[]")
	for _, form := range []string{text, text[:6], hex.EncodeToString(raw[:4]), fmt.Sprintf("%X", raw[:4]), base64.StdEncoding.EncodeToString(raw)[:8], numbers, strings.ReplaceAll(numbers, " ", ",")} {
		if strings.Contains(printed, form) {
			t.Errorf("%q of the secret is printed", form)
		}
	}
	for _, value := range []any{s, *s} {
		if encoded, err := json.Marshal(value); err == nil {
			t.Errorf("a secret is encoded as %s, which would be taken for it", encoded)
		}
	}
}

// The memory of a secret is locked, and neither dumped nor inherited.
func TestMemoryOfSecret(t *testing.T) {
	s := random(t, keys.Size)
	if err := s.Use(func(content []byte) error {
		flags := mappingFlags(t, uintptr(unsafe.Pointer(&content[0])))
		for _, flag := range []string{"dd", "wf", "lo"} {
			if !strings.Contains(" "+flags+" ", " "+flag+" ") {
				t.Errorf("the memory has the flags %q, without %s", flags, flag)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if ordinary := make([]byte, 1<<16); strings.Contains(mappingFlags(t, uintptr(unsafe.Pointer(&ordinary[0]))), "dd") {
		t.Error("the flags are those of any memory: the test proves nothing")
	}
}

// mappingFlags returns the flags of the mapping at an address.
func mappingFlags(t *testing.T, address uintptr) string {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skipf("cannot run: %v", err)
	}
	inside := false
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n == 2 {
			inside = from <= address && address < to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
			return strings.TrimSpace(flags)
		}
	}
	t.Fatal("the mapping is not found")
	return ""
}

// Destroying a secret waits for those who use it; nobody begins to use it meanwhile, and who uses it twice at a time is not held up.
func TestDestroyWhileInUse(t *testing.T) {
	s := random(t, keys.Size)
	using, release, destroyed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		err := s.Use(func(content []byte) error {
			close(using)
			<-release
			if bytes.Equal(content, make([]byte, len(content))) {
				t.Error("zeroed while it is used")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-using
	wait.Go(func() {
		s.Destroy()
		close(destroyed)
	})
	deadline := time.After(5 * time.Minute)
	for s.Use(func([]byte) error { return nil }) == nil {
		select {
		case <-deadline:
			t.Fatal("it can be used although it is being destroyed")
		default:
		}
	}
	select {
	case <-destroyed:
		t.Error("destroyed while it is used")
	default:
	}
	close(release)
	<-destroyed
	wait.Wait()
}

func TestEncrypt(t *testing.T) {
	key, plain := random(t, keys.Size), secretOf(t, "plain text")
	sealed, err := keys.Encrypt(key, plain, []byte("with"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := keys.Decrypt(key, sealed, []byte("with"))
	if err != nil || !got.Equal(plain) {
		t.Fatalf("decrypted: %v", err)
	}
	got.Destroy()
	again, err := keys.Encrypt(key, plain, []byte("with"))
	if err != nil || bytes.Equal(again, sealed) || bytes.Contains(sealed, []byte("plain")) {
		t.Errorf("encrypted twice: %x and %x, %v", sealed, again, err)
	}
	refuse := func(what string, key *keys.Secret, sealed []byte, with string) {
		t.Helper()
		if got, err := keys.Decrypt(key, sealed, []byte(with)); !errors.Is(err, keys.ErrDamaged) || got != nil {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	refuse("another key", random(t, keys.Size), sealed, "with")
	refuse("with something else", key, sealed, "without")
	for i := range sealed {
		refuse("cut off", key, sealed[:i], "with")
		for bit := range 8 {
			flipped := bytes.Clone(sealed)
			flipped[i] ^= 1 << bit
			refuse("a flipped bit", key, flipped, "with")
		}
	}
	if _, err := keys.Encrypt(random(t, 16), plain, nil); err == nil {
		t.Error("encrypted by a short key")
	}
	destroyed, err := keys.NewSecret(keys.Size)
	if err != nil {
		t.Fatal(err)
	}
	destroyed.Destroy()
	if _, err := keys.Encrypt(destroyed, plain, nil); !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("by a destroyed key: %v", err)
	}
	if _, err := keys.Decrypt(destroyed, sealed, nil); !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("by a destroyed key: %v", err)
	}
}
