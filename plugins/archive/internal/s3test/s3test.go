// Package s3test is an S3 server for tests.
package s3test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
)

// The key that servers take, and their bucket.
const (
	Key, Secret = "AKIDTEST", "a-secret-that-nobody-may-see"
	Bucket      = "reeve"
)

// Server is an S3 server with one bucket, which takes one key. What it refuses is answered as Amazon does.
type Server struct {
	*httptest.Server
	backend gofakes3.Backend
	refuse  atomic.Value // a string
}

// New returns a server that does not listen yet.
func New() (*Server, error) {
	s := &Server{backend: s3mem.New()}
	s.Refuse("")
	if err := s.backend.CreateBucket(Bucket); err != nil {
		return nil, err
	}
	behind := gofakes3.New(s.backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		code := s.refuse.Load().(string)
		if !strings.Contains(request.Header.Get("Authorization"), "Credential="+Key+"/") {
			code = "InvalidAccessKeyId"
		}
		if code != "" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>refused by the test</Message></Error>", code)
			return
		}
		behind.ServeHTTP(w, request)
	}))
	return s, nil
}

// Start starts a server, with TLS or without, which ends with the test.
func Start(t testing.TB, secure bool) *Server {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	s.Config.ErrorLog = log.New(t.Output(), "", 0)
	if secure {
		s.StartTLS()
	} else {
		s.Server.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Refuse has every request answered with a code; empty: as it should be.
func (s *Server) Refuse(code string) { s.refuse.Store(code) }

// Configuration is that of a role which keeps copies there.
func (s *Server) Configuration(t testing.TB) configuration.Bucket {
	t.Helper()
	config := configuration.Bucket{
		Endpoint: s.URL, Name: Bucket, Prefix: "prod/", Region: "us-east-1", PathStyle: true, CredentialsFile: File(t, Credentials(Key)),
	}
	if s.TLS != nil {
		config.CAFile = File(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	}
	return config
}

// Credentials is a file of credentials with a key.
func Credentials(key string) string {
	return "[default]\naws_access_key_id = " + key + "\naws_secret_access_key = " + Secret + "\n"
}

// File writes a file of the test, and returns its path.
func File(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Object reads an object; nil: there is none.
func (s *Server) Object(t testing.TB, name string) []byte {
	t.Helper()
	content, err := s.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Read reads an object; nil: there is none.
func (s *Server) Read(name string) ([]byte, error) {
	found, err := s.backend.GetObject(Bucket, name, nil)
	if err != nil {
		return nil, nil
	}
	defer func() { _ = found.Contents.Close() }()
	return io.ReadAll(found.Contents)
}

// Put puts an object into the bucket as somebody else would.
func (s *Server) Put(t testing.TB, name string) {
	t.Helper()
	if _, err := s.backend.PutObject(Bucket, name, nil, strings.NewReader("other"), 5, nil); err != nil {
		t.Fatal(err)
	}
}
