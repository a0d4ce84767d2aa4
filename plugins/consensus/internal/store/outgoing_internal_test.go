package store

import (
	"errors"
	"net/http"
	"reflect"
	"testing"
)

// TestOtherEtcdIsNoPanic says so when etcd does not keep where it did what it speaks through.
func TestOtherEtcdIsNoPanic(t *testing.T) {
	held := struct{ there, empty, other http.RoundTripper }{there: &http.Transport{}, other: http.NewFileTransport(http.Dir("/"))}
	if _, err := transportIn(reflect.ValueOf(held), "there"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"empty", "other", "none"} {
		if _, err := transportIn(reflect.ValueOf(held), name); err == nil {
			t.Errorf("%s is a transport", name)
		}
	}
	var broken *BrokenError
	if err := guard(func() error { panic("gone") }); !errors.As(err, &broken) || broken.Cause != "gone" {
		t.Errorf("a panic is %v", err)
	}
}
