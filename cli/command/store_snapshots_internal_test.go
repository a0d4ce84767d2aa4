package command

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/proto/snapshot"
)

// TestSnapshotOfAFormerCA holds that one who fetches a snapshot which was taken before the CA was rotated is told so, and nobody else.
func TestSnapshotOfAFormerCA(t *testing.T) {
	former, present := &x509.Certificate{Raw: []byte("former")}, &x509.Certificate{Raw: []byte("present")}
	header := &snapshot.Header{Authority: former}
	if said := warnOfCA(header, []*x509.Certificate{present, former}); said != "" {
		t.Error(said)
	}
	if said := warnOfCA(header, []*x509.Certificate{present}); !strings.Contains(said, "signed by another CA") {
		t.Errorf("%q", said)
	}
}
