package target_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/plugins/archive/internal/s3test"
	"github.com/reeveproject/reeve/plugins/archive/internal/target"
)

func open(t *testing.T, config configuration.Bucket) *target.Bucket {
	t.Helper()
	b, err := target.OpenBucket(config, node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestBucket(t *testing.T) {
	s := s3test.Start(t, true) // without TLS each part is signed in pieces, which this server takes for a part of the content
	b := open(t, s.Configuration(t))
	if found, err := b.List(t.Context()); err != nil || len(found) != 0 {
		t.Fatalf("%v, %v", found, err)
	}
	small, large := []byte("hello"), make([]byte, 33<<20) // of three parts
	if _, err := rand.Read(large); err != nil {
		t.Fatal(err)
	}
	for number, content := range map[uint64][]byte{1: small, 2: large, 3: small} {
		// Without Seek and ReadAt, as a copy comes.
		if err := b.Put(t.Context(), named(number), int64(len(content)), io.MultiReader(bytes.NewReader(content))); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(s.Object(t, "prod/reeve-1/20261128T180000Z-1.snapshot"), small) || !bytes.Equal(s.Object(t, "prod/reeve-1/20261128T180000Z-2.snapshot"), large) {
		t.Error("the copies are not what was put")
	}
	for _, other := range []string{"prod/reeve-1/notes.txt", "prod/reeve-1/20261128T180000Z-4", "prod/reeve-10/20261128T180000Z-5.snapshot", "prod/reeve-1/sub/20261128T180000Z-6.snapshot"} {
		s.Put(t, other)
	}
	if err := b.Remove(t.Context(), named(3)); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), named(3)); err != nil {
		t.Errorf("once more: %v", err)
	}
	if found, err := b.List(t.Context()); err != nil || len(found) != 2 || found[named(1)] != 5 || found[named(2)] != int64(len(large)) {
		t.Errorf("%v, %v", found, err)
	}
}

// TestBucketBrokenOff holds that a copy which is not complete is no object.
func TestBucketBrokenOff(t *testing.T) {
	s := s3test.Start(t, false)
	b := open(t, s.Configuration(t))
	lost := errors.New("the curator is gone")
	for _, size := range []int{1 << 20, 20 << 20} {
		half := io.MultiReader(bytes.NewReader(make([]byte, size/2)), iotest.ErrReader(lost))
		wantError(t, b.Put(t.Context(), named(1), int64(size), half), "the curator is gone")
		if found, err := b.List(t.Context()); err != nil || len(found) != 0 {
			t.Errorf("%d bytes: %v, %v", size, found, err)
		}
	}
}

// TestBucketRefuses holds that the reason says what to do, and has no secret.
func TestBucketRefuses(t *testing.T) {
	s := s3test.Start(t, false)
	b := open(t, s.Configuration(t))
	for code, text := range map[string]string{
		"SignatureDoesNotMatch": "put good ones into", "AccessDenied": "may not do that", "RequestTimeTooSkewed": "the clock of this machine", "NoSuchBucket": "there is no such bucket",
		"QuotaExceeded": "make room, or keep fewer copies", "SomethingElse": "the server answers SomethingElse: refused by the test",
	} {
		s.Refuse(code)
		_, err := b.List(t.Context())
		for _, err := range []error{err, b.Put(t.Context(), named(1), 5, strings.NewReader("hello")), b.Remove(t.Context(), named(1))} {
			wantError(t, err, text, s.URL, s3test.Bucket)
			if err != nil && strings.Contains(err.Error(), s3test.Secret) {
				t.Errorf("a secret is shown: %v", err)
			}
		}
	}
	s.Refuse("")
	other := s.Configuration(t)
	other.CredentialsFile = s3test.File(t, s3test.Credentials("AKIDOTHER"))
	_, err := open(t, other).List(t.Context())
	wantError(t, err, "it does not take the credentials (InvalidAccessKeyId)", other.CredentialsFile)
	other = s.Configuration(t)
	other.Name = "none"
	_, err = open(t, other).List(t.Context())
	wantError(t, err, "there is no such bucket")
	s.Close()
	_, err = b.List(t.Context())
	wantError(t, err, "cannot list the bucket reeve at "+s.URL, "connection refused")
}

// TestBucketOverTLS holds that a server is believed only if its CA is.
func TestBucketOverTLS(t *testing.T) {
	s := s3test.Start(t, true)
	config := s.Configuration(t)
	config.CAFile = ""
	_, err := open(t, config).List(t.Context())
	wantError(t, err, "the CA of its certificate is not trusted", "caFile")
	config = s.Configuration(t)
	if err := open(t, config).Put(t.Context(), named(1), 5, io.MultiReader(strings.NewReader("hello"))); err != nil {
		t.Error(err)
	}
	if got := s.Object(t, "prod/reeve-1/20261128T180000Z-1.snapshot"); string(got) != "hello" {
		t.Errorf("%q", got)
	}
	config.CAFile = s3test.File(t, "no certificate")
	_, err = target.OpenBucket(config, node)
	wantError(t, err, "has no certificates")
}

// TestCredentials holds that what cannot be used is named, and not shown.
func TestCredentials(t *testing.T) {
	config := s3test.Start(t, false).Configuration(t)
	for _, content := range []string{"", s3test.Secret, "[default]\n" + s3test.Secret, "[other]\naws_access_key_id=a\naws_secret_access_key=" + s3test.Secret, "[default]\naws_secret_access_key=" + s3test.Secret} {
		config.CredentialsFile = s3test.File(t, content)
		_, err := target.OpenBucket(config, node)
		wantError(t, err, "want a section [default]", config.CredentialsFile)
		if err != nil && strings.Contains(err.Error(), s3test.Secret) {
			t.Errorf("a secret is shown: %v", err)
		}
	}
	config.CredentialsFile = filepath.Join(t.TempDir(), "none")
	_, err := target.OpenBucket(config, node)
	wantError(t, err, "no such file", config.CredentialsFile)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{t.TempDir(), pipe} {
		config.CredentialsFile = path
		_, err = target.OpenBucket(config, node)
		wantError(t, err, "not a file")
	}
}
