package target

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/plugins/archive/internal/s3test"
	"github.com/reeveproject/reeve/proto/limits"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// openAt returns a bucket at an endpoint, whose requests a handler answers.
func openAt(t *testing.T, endpoint string, handler http.HandlerFunc) *Bucket {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	b, err := OpenBucket(configuration.Bucket{
		Endpoint: endpoint, Name: s3test.Bucket, Region: "us-east-1", PathStyle: true, CredentialsFile: s3test.File(t, s3test.Credentials(s3test.Key)),
	}, "reeve-000102030405060708090a0b0c0d0e0f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	b.transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return b
}

// TestChecksum holds that the MD5 of a part is sent, but not to Google's server: the whole object would be held for it.
func TestChecksum(t *testing.T) {
	for endpoint, sent := range map[string]bool{"http://s3.example.com": true, "http://storage.googleapis.com": false} {
		put := make(chan string, 1)
		b := openAt(t, endpoint, func(w http.ResponseWriter, request *http.Request) {
			_, _ = io.Copy(io.Discard, request.Body)
			if request.Method == http.MethodPut {
				put <- request.Header.Get("Content-Md5")
			} else {
				w.WriteHeader(http.StatusNotFound)
			}
		})
		if err := b.Put(t.Context(), snapshot.Name{Number: 1}, 5, strings.NewReader("hello")); err != nil {
			t.Fatal(err)
		}
		if sum := <-put; (sum != "") != sent {
			t.Errorf("%s is sent the MD5 %q", endpoint, sum)
		}
	}
}

// TestSilentServer holds that a server which does not answer is waited for no longer than it is said.
func TestSilentServer(t *testing.T) {
	b := openAt(t, "http://s3.example.com", func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	b.callTime = time.Millisecond
	_, err := b.List(t.Context())
	for _, err := range []error{err, b.Remove(t.Context(), snapshot.Name{Number: 1})} {
		if err == nil || !strings.Contains(err.Error(), "has not answered all of it within 1ms") {
			t.Error(err)
		}
	}
}

// TestEndlessList holds that a list has an end, however many there are.
func TestEndlessList(t *testing.T) {
	b := openAt(t, "http://s3.example.com", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken><Contents><Key>other</Key></Contents></ListBucketResult>")
	})
	b.maxKeys = 10
	if _, err := b.List(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 10 objects") {
		t.Error(err)
	}
}

// TestLongAnswer holds that what a server says leaves room for what to do.
func TestLongAnswer(t *testing.T) {
	for code, remedy := range map[string]string{"AccessDenied": "allow it to list the bucket", "AuthorizationHeaderMalformed": "name it in the configuration", "QuotaExceeded": "make room"} {
		b := openAt(t, "http://s3.example.com", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>"+strings.Repeat("no ", 500)+"</Message></Error>")
		})
		_, err := b.List(t.Context())
		if err == nil || !strings.Contains(err.Error(), remedy) || len(err.Error()) > limits.Reason {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestParseCredentials holds that a secret is taken as it is, and only of the section that is meant.
func TestParseCredentials(t *testing.T) {
	for content, want := range map[string]string{
		"[default]\naws_access_key_id = A\naws_secret_access_key=p#s;s=\\\naws_session_token =t\n":                                     `A p#s;s=\ t`,
		"[other]\naws_access_key_id=B\n[default]\r\naws_access_key_id=A\r\n# aws_secret_access_key=x\n[more]\naws_secret_access_key=y": "A  ",
		"aws_access_key_id=A": "  ", "": "  ",
	} {
		if key := parseCredentials(content); key.AccessKeyID+" "+key.SecretAccessKey+" "+key.SessionToken != want {
			t.Errorf("%q is taken for %q, %q, %q", content, key.AccessKeyID, key.SecretAccessKey, key.SessionToken)
		}
	}
}

// FuzzCredentials holds that what is taken from a file stands in one line of it.
func FuzzCredentials(f *testing.F) {
	f.Add("[default]\naws_access_key_id=A\naws_secret_access_key=p#s\n")
	f.Add("[default]\n=\n[default\naws_session_token==")
	f.Fuzz(func(t *testing.T, content string) {
		key := parseCredentials(content)
		for _, value := range []string{key.AccessKeyID, key.SecretAccessKey, key.SessionToken} {
			if strings.ContainsRune(value, '\n') || !strings.Contains(content, value) {
				t.Errorf("%q has given %q", content, value)
			}
		}
	})
}
