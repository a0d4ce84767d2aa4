package recovery_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/recovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const content = "what opens a volume"

// made is a recovery key and its public half, as the files of their makers have them.
func made(t *testing.T) (text []byte, key *recovery.Key) {
	t.Helper()
	text, recipient, err := recovery.New(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	key, err = recovery.Parse(text, "the key")
	if err != nil || key.Recipient != recipient {
		t.Fatalf("the key that was made for %s is %+v, %v", recipient, key, err)
	}
	return text, key
}

// encrypt returns a recovery file for a recipient.
func encrypt(t testing.TB, to age.Recipient) []byte {
	t.Helper()
	var file bytes.Buffer
	writer, err := age.Encrypt(&file, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestOpen(t *testing.T) {
	_, key := made(t)
	_, other := made(t)
	recipient, err := age.ParseX25519Recipient(key.Recipient)
	if err != nil {
		t.Fatal(err)
	}
	file := recovery.File{Recipient: key.Recipient, Content: encrypt(t, recipient)}
	got, err := key.Open(file, "node n", "k")
	if err != nil || string(got) != content {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = other.Open(file, "node n", "k")
	if fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "the recovery file of node n is for "+key.Recipient+", and this key is "+other.Recipient) {
		t.Errorf("a wrong key: %v", err)
	}
	// Cut off anywhere, or with any bit flipped, it is never taken for a whole one.
	for length := range file.Content {
		if got, err := key.Open(recovery.File{Recipient: key.Recipient, Content: file.Content[:length]}, "node n", "k"); err == nil {
			t.Errorf("%d bytes of it are %q", length, got)
		}
		flipped := bytes.Clone(file.Content)
		flipped[length] ^= 1
		if got, err := key.Open(recovery.File{Recipient: key.Recipient, Content: flipped}, "node n", "k"); err == nil {
			t.Errorf("with byte %d flipped it is %q", length, got)
		} else if fault.CodeOf(err) != fault.Failed {
			t.Errorf("with byte %d flipped: %v", length, err)
		}
	}
}

// TestHybrid holds that a key of age that withstands quantum computers is one.
func TestHybrid(t *testing.T) {
	identity, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	key, err := recovery.Parse([]byte(identity.String()+"\r\n"), "the key")
	if err != nil {
		t.Fatal(err)
	}
	if err := recovery.CheckRecipient(key.Recipient, "--recovery-recipient"); err != nil {
		t.Error(err)
	}
	if got, err := key.Open(recovery.File{Content: encrypt(t, identity.Recipient())}, "node n", "k"); err != nil || string(got) != content {
		t.Errorf("%q, %v", got, err)
	}
}

func TestCreate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recovery.key")
	recipient, err := recovery.Create(file, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	key, err := recovery.ReadFile(file)
	if err != nil || key.Recipient != recipient {
		t.Errorf("%+v, %v", key, err)
	}
	if _, err := recovery.Create(file, time.Now()); fault.CodeOf(err) != fault.Refused {
		t.Errorf("a second time: %v", err)
	}
	if again, err := recovery.ReadFile(file); err != nil || again.Recipient != recipient {
		t.Errorf("the key changed: %v", err)
	}
}

// TestErrorsQuoteNothing holds that no error has anything of a key in it.
func TestErrorsQuoteNothing(t *testing.T) {
	text, _ := made(t)
	secret := text[bytes.Index(text, []byte("AGE-SECRET-KEY-1"))+len("AGE-SECRET-KEY-1"):]
	for i := range secret[:len(secret)-1] {
		damaged := bytes.Clone(text)
		damaged[len(text)-len(secret)+i] = 'b'
		key, err := recovery.Parse(damaged, "the key")
		if err == nil {
			t.Fatalf("with character %d another one it is %+v", i, key)
		}
		for at := 0; at+8 <= len(secret); at++ {
			if strings.Contains(strings.ToUpper(err.Error()), string(secret[at:at+8])) {
				t.Fatalf("the error quotes the key: %v", err)
			}
		}
	}
	if _, err := recovery.Read(strings.NewReader(strings.Repeat("#", 1<<17)), "the key"); fault.CodeOf(err) != fault.Usage {
		t.Errorf("a large one: %v", err)
	}
	broken := errors.New("broken")
	if _, err := recovery.Read(failing{broken}, "the key"); !errors.Is(err, broken) {
		t.Errorf("one that cannot be read: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzParse holds that whatever is in a key file is a key or a refusal.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := recovery.Parse(text, "the key")
		if (key == nil) != (err != nil) {
			t.Errorf("%+v, %v", key, err)
		}
		if err != nil && fault.CodeOf(err) != fault.Usage {
			t.Error(err)
		}
	})
}

// FuzzOpen holds that a recovery file, which comes from a node, is opened or refused.
func FuzzOpen(f *testing.F) {
	text, err := os.ReadFile("testdata/recovery-key.txt")
	if err != nil {
		f.Fatal(err)
	}
	// The same key in every process that fuzzes, or no file of another's would open.
	key, err := recovery.Parse(text, "the key")
	if err != nil {
		f.Fatal(err)
	}
	file, err := os.ReadFile("testdata/recovery.age")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := key.Open(recovery.File{Content: file}, "node n", "k"); err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:len(file)/2])
	f.Fuzz(func(t *testing.T, file []byte) {
		if got, err := key.Open(recovery.File{Content: file}, "node n", "k"); err == nil && string(got) != content {
			t.Errorf("it is %q", got)
		}
	})
}
