package attest_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/attest"
	"github.com/reeveproject/reeve/proto/limits"
)

func key(letter byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(letter), ed25519.SeedSize)))
}

func public(private ed25519.PrivateKey) ed25519.PublicKey {
	return private.Public().(ed25519.PublicKey)
}

func report() *attest.Report {
	return &attest.Report{
		File: "lamp", Digest: "sha256:" + strings.Repeat("a", 64),
		Configurations: []attest.Configuration{{Role: "lamp", Digest: "sha256:" + strings.Repeat("c", 64)}},
		Conformance: attest.Conformance{
			SuiteVersion: "0.1.0", Plugin: "lamp", PluginVersion: "1.2.3",
			Machine: attest.Machine{OS: "linux", Architecture: "amd64", Processors: 2, Kernel: "6.1"},
			Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Seconds: 12.5,
			Profiles: []attest.Profile{{Profile: "core", Verdict: attest.Conforms}, {Profile: "consensus user", Verdict: attest.NotApplicable}},
			Checks: []attest.Check{
				{Check: "handshake.line", Profile: "core", Status: attest.Pass, Reason: "it took 12 ms", Seconds: 0.5},
				{Check: "store.keys", Profile: "consensus user", Status: attest.Skip, Reason: "no role has a ConsensusUser"},
			},
			Reproduce: []string{"reeve", "plugin", "test", "lamp"},
		},
	}
}

func sign(t *testing.T, r *attest.Report) []byte {
	t.Helper()
	signed, err := attest.Sign(r, key('o'))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// read opens an envelope and verifies it with a key.
func read(text []byte, with ed25519.PublicKey) (*attest.Report, error) {
	opened, err := attest.Open(text)
	if err != nil {
		return nil, err
	}
	return opened.Verify(with)
}

func TestWhatIsSignedIsRead(t *testing.T) {
	signed := sign(t, report())
	opened, err := attest.Open(signed)
	if err != nil || !opened.Key.Equal(public(key('o'))) {
		t.Fatalf("signed by %x, %v", opened.Key, err)
	}
	got, err := opened.Verify(opened.Key)
	if err != nil || !reflect.DeepEqual(got, report()) || got.Result() != attest.Passed {
		t.Errorf("read %+v, %v", got, err)
	}
}

// The format is that of in-toto and DSSE: what others read of it is written down here, and not taken from the code.
func TestTheFormat(t *testing.T) {
	var envelope struct {
		PayloadType, Payload string
		Signatures           []struct{ KeyID, Sig string }
	}
	if err := json.Unmarshal(sign(t, report()), &envelope); err != nil {
		t.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(envelope.Signatures[0].Sig)
	if err != nil {
		t.Fatal(err)
	}
	signed := fmt.Sprintf("DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload)
	if !ed25519.Verify(public(key('o')), []byte(signed), signature) {
		t.Error("the signature is not over DSSE's encoding")
	}
	var got map[string]any
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	delete(got["predicate"].(map[string]any), "reeve_conformance")
	var want map[string]any
	if err := json.Unmarshal(fmt.Appendf(nil, `{
		"_type": "https://in-toto.io/Statement/v1",
		"subject": [{"name": "lamp", "digest": {"sha256": "%s"}}],
		"predicateType": "https://in-toto.io/attestation/test-result/v0.1",
		"predicate": {
			"result": "PASSED",
			"configuration": [
				{"name": "reeve-conformance", "uri": "pkg:golang/github.com/reeveproject/reeve/sdk/conformance@0.1.0"},
				{"name": "configuration of role lamp", "digest": {"sha256": "%s"}}
			],
			"passedTests": ["handshake.line"], "warnedTests": [], "failedTests": []
		}
	}`, strings.Repeat("a", 64), strings.Repeat("c", 64)), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the statement is %s", payload)
	}
}

func TestResults(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*attest.Report)
		want   string
	}{
		"fail":       {func(r *attest.Report) { r.Checks[0].Status, r.Profiles[0].Verdict = attest.Fail, attest.DoesNotConform }, attest.Failed},
		"incomplete": {func(r *attest.Report) { r.Checks[0].Status, r.Profiles[0].Verdict = attest.NotRun, attest.Incomplete }, attest.Failed},
		"both": {func(r *attest.Report) {
			r.Checks[0].Status, r.Checks[1] = attest.NotRun, attest.Check{Check: "b", Profile: "core", Status: attest.Fail}
			r.Profiles[0].Verdict = attest.DoesNotConform
		}, attest.Failed},
		"nothing applies": {func(r *attest.Report) { r.Checks[0].Status, r.Profiles[0].Verdict = attest.Skip, attest.NotApplicable }, attest.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			changed := report()
			test.change(changed)
			got, err := read(sign(t, changed), public(key('o')))
			if err != nil || got.Result() != test.want {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// What says nothing or contradicts itself is not signed.
func TestSignRefuses(t *testing.T) {
	for want, change := range map[string]func(*attest.Report){
		"the digest of the plugin":  func(r *attest.Report) { r.Digest = "" },
		"suite's version":           func(r *attest.Report) { r.SuiteVersion = "" },
		"when the run began":        func(r *attest.Report) { r.Started = time.Time{} },
		"it has 0 checks":           func(r *attest.Report) { r.Checks = nil },
		"is there twice":            func(r *attest.Report) { r.Checks[1].Check = r.Checks[0].Check },
		`ended with "warned"`:       func(r *attest.Report) { r.Checks[0].Status = "warned" },
		"of which nothing is said":  func(r *attest.Report) { r.Checks[0].Profile = "other" },
		"by its checks it is does":  func(r *attest.Report) { r.Checks[0].Status = attest.Fail },
		"by its checks it is inc":   func(r *attest.Report) { r.Checks[0].Status = attest.NotRun },
		"is not one line":           func(r *attest.Report) { r.Plugin = "\x1b[2J" },
		"has no digest":             func(r *attest.Report) { r.Configurations[0].Digest = "sha256:0" },
		"at most 65536 fit":         grow,
		"is there twice, or has no": func(r *attest.Report) { r.Profiles[1].Profile = "" },
	} {
		changed := report()
		change(changed)
		if _, err := attest.Sign(changed, key('o')); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func grow(r *attest.Report) {
	for n := range 120 {
		r.Checks = append(r.Checks, attest.Check{Check: fmt.Sprint(n), Profile: "core", Status: attest.Pass, Reason: strings.Repeat("x", 1000)})
	}
}

// forge signs whatever it is given, as somebody who has a key and means harm can.
func forge(payloadType, payload string, signatures int) []byte {
	signed := ed25519.Sign(key('o'), fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload))
	one := fmt.Sprintf(`{"keyid": %q, "sig": %q}`, attest.KeyID(public(key('o'))), base64.StdEncoding.EncodeToString(signed))
	all := strings.TrimSuffix(strings.Repeat(one+",", signatures), ",")
	return fmt.Appendf(nil, `{"payloadType": %q, "payload": %q, "signatures": [%s]}`, payloadType, base64.StdEncoding.EncodeToString([]byte(payload)), all)
}

// payload is what a report that is well signs.
func payload(t *testing.T, r *attest.Report) string {
	t.Helper()
	var envelope struct{ Payload []byte }
	if err := json.Unmarshal(sign(t, r), &envelope); err != nil {
		t.Fatal(err)
	}
	return string(envelope.Payload)
}

// TestForgeries has reports that are signed by the very key that they are verified with, and reports that are not.
func TestForgeries(t *testing.T) {
	whole := payload(t, report())
	replaced := func(old, by string) string {
		if !strings.Contains(whole, old) {
			t.Fatalf("%q is not in %s", old, whole)
		}
		return strings.Replace(whole, old, by, 1)
	}
	envelope := string(sign(t, report()))
	if _, err := read(forge(attest.PayloadType, whole, 1), public(key('o'))); err != nil {
		t.Fatalf("what is forged is not what it was made of: %v", err)
	}
	for name, test := range map[string]struct {
		text []byte
		want string
	}{
		"another payload type":    {forge("application/json", whole, 1), `"application/json"`},
		"no signature":            {forge(attest.PayloadType, whole, 0), "0 signatures"},
		"two signatures":          {forge(attest.PayloadType, whole, 2), "2 signatures"},
		"too large":               {append([]byte(envelope), strings.Repeat(" ", limits.Attestation)...), "more than"},
		"no JSON":                 {[]byte("reeve"), "the envelope"},
		"empty":                   {nil, "the envelope"},
		"two documents":           {[]byte(envelope + envelope), "something follows"},
		"another key ID":          {[]byte(strings.Replace(envelope, attest.KeyID(public(key('o'))), "release", 1)), "keyid"},
		"payload twice":           {[]byte(strings.Replace(envelope, `"payload":`, `"payload":"e30=","payload":`, 1)), "is there twice"},
		"payload in other case":   {[]byte(strings.Replace(envelope, `"payload":`, `"Payload":"e30=","payload":`, 1)), "is not written as"},
		"not UTF-8":               {[]byte(strings.Replace(envelope, `"payload":`, "\"\xff\":1,\"payload\":", 1)), "not UTF-8"},
		"deep":                    {[]byte(`{"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`), "nested deeper"},
		"result twice":            {forge(attest.PayloadType, replaced(`"result":`, `"result":"FAILED","result":`), 1), "is there twice"},
		"a check in other case":   {forge(attest.PayloadType, replaced(`"checks":`, `"Checks":[],"checks":`), 1), "is not written as"},
		"a folded letter":         {forge(attest.PayloadType, replaced(`"subject":`, `"\u017fubject":`), 1), "is not written as"},
		"another statement":       {forge(attest.PayloadType, replaced("Statement/v1", "Statement/v0.1"), 1), "its type is"},
		"another predicate":       {forge(attest.PayloadType, replaced("test-result/v0.1", "vsa/v1"), 1), "its predicate is"},
		"no digest":               {forge(attest.PayloadType, replaced(`"sha256"`, `"sha512"`), 1), "the digest of the plugin"},
		"no subject":              {forge(attest.PayloadType, replaced(`"subject":[`, `"subject":[{},`), 1), "about 2 things"},
		"nothing of ours":         {forge(attest.PayloadType, replaced(`"reeve_conformance"`, `"other_conformance"`), 1), "of another suite"},
		"a result that is a lie":  {forge(attest.PayloadType, replaced(`"status":"pass"`, `"status":"fail"`), 1), "by its checks"},
		"a lie to other readers":  {forge(attest.PayloadType, replaced(`"PASSED"`, `"WARNED"`), 1), "its result is"},
		"tests that were not run": {forge(attest.PayloadType, replaced(`"passedTests":[`, `"passedTests":["store.more",`), 1), "its lists of tests"},
		"another suite":           {forge(attest.PayloadType, replaced("conformance@0.1.0", "conformance@9.0.0"), 1), "does not name the suite"},
		"a changed payload": {[]byte(strings.Replace(envelope, base64.StdEncoding.EncodeToString([]byte(whole)),
			base64.StdEncoding.EncodeToString([]byte(replaced(strings.Repeat("a", 64), strings.Repeat("b", 64)))), 1)), "signature"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(test.text, public(key('o')))
			if err == nil || got != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want an error with %q, got %v, %v", test.want, got, err)
			}
		})
	}
	if _, err := read([]byte(envelope), public(key('x'))); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("another key: %v", err)
	}
	if _, err := read([]byte(envelope), nil); !errors.Is(err, attest.ErrSignature) {
		t.Errorf("no key: %v", err)
	}
}

// What a later version adds does not keep this one from reading the rest.
func TestUnknownFields(t *testing.T) {
	later := strings.Replace(payload(t, report()), `"suiteVersion":`, `"memory":{"bytes":1},"suiteVersion":`, 1)
	if got, err := read(forge(attest.PayloadType, later, 1), public(key('o'))); err != nil || got.Result() != attest.Passed {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzOpen(f *testing.F) {
	signed, err := attest.Sign(report(), key('o'))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"","signatures":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		// Whatever it is, it is signed by nobody whom we know, unless it says what was signed.
		got, err := read(text, public(key('o')))
		if (got == nil) == (err == nil) || got != nil && got.Digest != report().Digest {
			t.Errorf("%v, %v", got, err)
		}
	})
}

func FuzzStatement(f *testing.F) {
	signed, err := attest.Sign(report(), key('o'))
	if err != nil {
		f.Fatal(err)
	}
	var envelope struct{ Payload []byte }
	if err := json.Unmarshal(signed, &envelope); err != nil {
		f.Fatal(err)
	}
	f.Add(string(envelope.Payload))
	f.Add(`{"_type": "https://in-toto.io/Statement/v1", "predicate": {"reeve_conformance": {}}}`)
	f.Fuzz(func(t *testing.T, payload string) {
		got, err := read(forge(attest.PayloadType, payload, 1), public(key('o')))
		// Written anew it may be longer: characters that are written as they are become escapes.
		if err != nil || len(payload) > limits.Attestation/16 {
			return
		}
		// What is taken can be written, and is then taken for the same.
		again, err := attest.Sign(got, key('o'))
		if err != nil {
			t.Fatal(err)
		}
		if reread, err := read(again, public(key('o'))); err != nil || reread.Result() != got.Result() || reread.Digest != got.Digest {
			t.Errorf("%v, %v", reread, err)
		}
	})
}
