package redact_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/redact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConfiguration(t *testing.T) {
	for document, want := range map[string]string{
		``: ``,
		`{"a":{"b":["x","secret"],"n":12,"t":true,"z":null}}`: `{"a":{"b":["<string, 1 bytes>","<string, 6 bytes>"],"n":"<number>","t":"<bool>","z":null}}`,
		`"text"`:     `"<string, 4 bytes>"`,
		`{broken`:    `"<7 bytes that are not JSON>"`,
		`{} {"a":1}`: `"<10 bytes that are not JSON>"`,
	} {
		if got := redact.Configuration(document); got != want {
			t.Errorf("%s became %s, want %s", document, got, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	document := `{"listen":"127.0.0.1:7443","path":"/etc/hosts","net":"10.0.0.0/8","url":"https://example.org/x","level":"information",
		"password":"plainword","deep":[{"seed":"canary-4f1c9a77"}],"short":"x1","dsn":"postgres://u:p@db/x"}`
	got := redact.Secrets(document)
	slices.Sort(got)
	want := []string{"canary-4f1c9a77", "plainword", "postgres://u:p@db/x"}
	if !slices.Equal(got, want) {
		t.Errorf("secrets %q, want %q", got, want)
	}
	if got := redact.Secrets("{"); got != nil {
		t.Errorf("a broken document has secrets %q", got)
	}
}

func TestText(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	armoured := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	lines := strings.Split(armoured, "\n")
	quoted, err := json.Marshal(armoured)
	if err != nil {
		t.Fatal(err)
	}
	certificate := "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQIRi6zePL6mKjOipn+dNuaTAKBggqhkjOPQQDAjASMRAw\n-----END CERTIFICATE-----\n"
	tests := []struct {
		name, text string
		// gone must not be left; want is the result, where it is given.
		gone, want string
	}{
		{name: "PEM", text: "a\n" + armoured + "b", want: "a\n" + redact.Mark + "\nb"},
		{name: "PEM in JSON", text: `{"key":` + string(quoted) + `,"b":1}`, gone: lines[1]},
		{name: "PEM without its end", text: "a\n" + lines[0] + "\n" + lines[1], gone: lines[1]},
		{name: "PEM without its beginning", text: lines[1] + "\n" + lines[2] + "\nb", gone: lines[1]},
		{name: "PEM over lines of a log", text: "x " + lines[0] + "\nx " + lines[1] + "\nx " + lines[2], gone: lines[1]},
		{name: "base64", text: "key " + base64.StdEncoding.EncodeToString(der), want: "key " + redact.Mark},
		{name: "hex", text: hex.EncodeToString(der), want: redact.Mark},
		{name: "certificates stay", text: certificate, want: certificate},
		{name: "JSON", text: `{"token":"abc def","tokens":5,"next":"x"}`, want: `{"token":"[redacted]","tokens":5,"next":"x"}`},
		{name: "JSON in JSON", text: `"{\"api_key\":\"abc\",\"next\":\"x\"}"`, want: `"{\"api_key\":\"[redacted]\",\"next\":\"x\"}"`},
		{name: "escapes in JSON", text: `{"secret":"a\"b\\","next":"x"}`, want: `{"secret":"[redacted]","next":"x"}`},
		{name: "escapes in JSON in JSON", text: `"{\"secret\":\"a\\\"b\\\\\",\"next\":\"x\"}"`, want: `"{\"secret\":\"[redacted]\",\"next\":\"x\"}"`},
		{name: "no closing quote", text: "secret=\"a b\nc", want: "secret=\"[redacted]\nc"},
		{name: "logfmt", text: `user=x db.password=hunter2 y=z`, want: `user=x db.password=[redacted] y=z`},
		{name: "header", text: `Authorization: Bearer abcdefgh12345`, want: `Authorization: Bearer [redacted]`},
		{name: "URL", text: `dial postgres://me:geheim@db:5432/x`, want: `dial postgres://[redacted]@db:5432/x`},
		{name: "JWT", text: `got eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abcDEF`, want: `got [redacted]`},
		{name: "known", text: `greeting canary-1"2 and canary-1\"2`, want: `greeting [redacted] and [redacted]`},
		{name: "known within another", text: `canary-1"2-long`, want: `[redacted]`},
		{name: "nothing", text: "the role is Ready: 3 of 10", want: "the role is Ready: 3 of 10"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := redact.New(`canary-1"2`, `canary-1"2-long`, "")
			got := r.Text(test.text)
			if test.gone != "" && strings.Contains(got, test.gone) {
				t.Errorf("%q is left in %q", test.gone, got)
			}
			if test.want != "" && got != test.want {
				t.Errorf("it became %q, want %q", got, test.want)
			}
			if changed := got != test.text; changed != (r.Count() > 0) {
				t.Errorf("changed: %t, counted: %d", changed, r.Count())
			}
			if again := r.Text(got); again != got {
				t.Errorf("a second pass made %q of %q", again, got)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	for document, want := range map[string]string{
		`{ "a": 1.50, "b": "x" }`:                              `{ "a": 1.50, "b": "x" }`,
		`{"Token":"abc","n":[{"secrets":["x","y"],"t":5}]}`:    `{"Token":"[redacted]","n":[{"secrets":["[redacted]","[redacted]"],"t":5}]}`,
		`{"message":"password=abc <b>","canary-12345678":"x"}`: `{"[redacted]":"x","message":"password=[redacted] <b>"}`,
		`not JSON, token: abc`:                                 `not JSON, token: [redacted]`,
	} {
		r := redact.New("canary-12345678")
		if got := r.JSON(document); got != want {
			t.Errorf("%s became %s, want %s", document, got, want)
		}
		if got := r.Lines(document + "\nx\n"); got != want+"\nx\n" {
			t.Errorf("lines with %s became %s", document, got)
		}
	}
}

// FuzzText holds that no private key is left, whatever is around it, and that JSON stays JSON.
func FuzzText(f *testing.F) {
	f.Add("a", "b", `{"token":"x"}`)
	f.Add("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", `["password=\"x\""]`)
	f.Add("\\n", "token: ", `{"secret":"\\\"","a":[1,true]}`)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.Fatal(err)
	}
	armoured := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	secret := strings.Split(armoured, "\n")[1]
	f.Fuzz(func(t *testing.T, before, after, document string) {
		if got := redact.New().Text(before + "\n" + armoured + after); strings.Contains(got, secret) {
			t.Errorf("the key is left in %q", got)
		}
		if json.Valid([]byte(document)) {
			if got := redact.New().JSON(document); !json.Valid([]byte(got)) {
				t.Errorf("%q became %q", document, got)
			}
		}
		lines := before + "\n" + armoured + after
		if got := redact.New().Lines(lines); strings.Contains(got, secret) {
			t.Errorf("the key is left in %q", got)
		}
		redact.Configuration(document)
		redact.Secrets(document)
	})
}
