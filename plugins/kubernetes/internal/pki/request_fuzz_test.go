package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"testing"
	"time"
)

// FuzzCertificateRequest: whatever is sent, what is signed is a proved key of the kind that is signed for, and says nothing of what the request says.
func FuzzCertificateRequest(f *testing.F) {
	for _, seed := range [][]byte{greedy(f), ofRSA(f), broken(f), {}, {0x30, 0x82, 0xff, 0xff}} {
		f.Add(seed)
	}
	made, err := makeAll(time.Now())
	if err != nil {
		f.Fatal(err)
	}
	signer, err := authorityOf(made[keyClients])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		request, err := requestOf(der)
		if err != nil {
			return
		}
		if key, ok := request.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() || request.CheckSignature() != nil {
			t.Fatalf("let through: %T", request.PublicKey)
		}
		signed, err := signer.sign(request, leaf{user: "somebody", usage: x509.ExtKeyUsageClientAuth, ends: time.Now().Add(time.Hour)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		says, err := x509.ParseCertificate(signed)
		if err != nil {
			t.Fatal(err)
		}
		if says.Subject.String() != "CN=somebody" || says.IsCA || len(says.DNSNames)+len(says.IPAddresses)+len(says.URIs)+len(says.EmailAddresses) > 0 || len(says.UnhandledCriticalExtensions) > 0 {
			t.Errorf("it says %s, %v, %v", says.Subject, says.DNSNames, says.IPAddresses)
		}
	})
}

// FuzzAuthorities: whatever the store holds, what is made of it signs what the present authority of its kind is known by.
func FuzzAuthorities(f *testing.F) {
	made, err := makeAll(time.Now())
	if err != nil {
		f.Fatal(err)
	}
	seed := func(list []stored, rotation string) {
		text, err := json.Marshal(list)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte(rotation))
	}
	seed(made[keyClients], "")
	seed([]stored{made[keyClients][0], made[keyServers][0]}, `{"phase": "prepared", "since": "2026-01-02T03:04:05Z"}`)
	seed([]stored{{Key: made[keyClients][0].Key, Certificate: made[keyServers][0].Certificate}}, `{"phase": "active"}`)
	f.Add([]byte(`[{}]`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, text, rotation []byte) {
		var list []stored
		if json.Unmarshal(text, &list) != nil || len(list) == 0 {
			return
		}
		if len(rotation) == 0 {
			rotation = nil
		}
		lists := map[string][]stored{keyServers: made[keyServers], keyClients: list, keyAggregators: made[keyAggregators], keyServiceAccounts: made[keyServiceAccounts]}
		all, err := authoritiesOf(lists, rotation)
		if err != nil {
			return
		}
		if !all.clients.certificate.PublicKey.(*ecdsa.PublicKey).Equal(all.clients.key.Public()) || all.phase == 0 {
			t.Error("another key signs than that of the authority, or nobody knows where the rotation stands")
		}
		if _, err := all.keys(); err != nil {
			t.Errorf("what is used cannot be shown: %v", err)
		}
	})
}
