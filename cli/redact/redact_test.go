package redact_test

import (
	"bytes"
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
		"password":"plainword","deep":[{"seed":"canary-4f1c9a77"}],"credentials":{"value":"innerword","n":[123456789]},"short":"x1","dsn":"postgres://u:p@db/x"}`
	got := redact.Secrets(document)
	slices.Sort(got)
	want := []string{"123456789", "canary-4f1c9a77", "innerword", "plainword", "postgres://u:p@db/x"}
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
		`{"message":"<b> password=abc","canary-12345678":"x"}`: `{"[redacted]":"x","message":"<b> password=[redacted]"}`,
		`{"password":{"value":"x"},"n":1}`:                     `{"n":1,"password":"[redacted]"}`,
		`{"tokens":{"alice":"x"},"password":123456789}`:        `{"password":"[redacted]","tokens":"[redacted]"}`,
		`{"pwd":"x","DB_PASS":"y","PWD":"/root"}`:              `{"DB_PASS":"[redacted]","PWD":"/root","pwd":"[redacted]"}`,
		`{"a":["--password","x y","-u","a:b","-v"]}`:           `{"a":["--password","[redacted]","-u","a:[redacted]","-v"]}`,
		`{"secret":[["x"],true]}`:                              `{"secret":[["[redacted]"],true]}`,
		`{"bypass":true,"passed":12345}`:                       `{"bypass":true,"passed":12345}`,
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

// TestNamed holds which values of names are taken out of free text, and where they end.
func TestNamed(t *testing.T) {
	for text, want := range map[string]string{
		// Options and words.
		`run --password hunter2 --user joe`:                                               `run --password [redacted] --user joe`,
		`run --db-password 'a b c' x`:                                                     `run --db-password '[redacted]' x`,
		`["mysql","--password","a b","x"]`:                                                `["mysql","--password","[redacted]","x"]`,
		`login with password hunter2 for joe`:                                             `login with password [redacted] for joe`,
		`the password is hunter2.`:                                                        `the password is [redacted].`,
		`Passphrase Tr0ub4dor!`:                                                           `Passphrase [redacted]`,
		`got token 8f3a6c1e99 from joe`:                                                   `got token [redacted] from joe`,
		`pwd=hunter2 PGPASS=geheim DB_PASS=x, pass: y`:                                    `pwd=[redacted] PGPASS=[redacted] DB_PASS=[redacted], pass: [redacted]`,
		`PWD=/root OLDPWD=/ x=y`:                                                          `PWD=/root OLDPWD=/ x=y`,
		`curl -u joe:geheim https://x`:                                                    `curl -u joe:[redacted] https://x`,
		`curl --user 'joe:ge heim' https://x`:                                             `curl --user 'joe:[redacted]' https://x`,
		`["curl","-u","joe:geheim"]`:                                                      `["curl","-u","joe:[redacted]"]`,
		`docker run -u 1000:1000 x`:                                                       `docker run -u 1000:1000 x`,
		`AGE-SECRET-KEY-1QQPQYYSZQGPQYZPQ x`:                                              `[redacted] x`,
		"a age-encryption.org/v1\n-> X25519 abc\n\x01":                                    `a [redacted]`,
		`a "age-encryption.org/v1\n-> X25519 abc`:                                         `a "[redacted]`,
		`see https://age-encryption.org/v1 for it`:                                        `see https://age-encryption.org/v1 for it`,
		"-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n-----END AGE ENCRYPTED FILE----- x":    `[redacted] x`,
		`file: YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IA== x`:                                    `file: [redacted] x`,
		`Authorization: Digest username="u", response="6629fae49393a05397450978507c4ef1"`: `Authorization: [redacted] username="u", response="[redacted]"`,
		`Digest response=6629fae49393a05397450978507c4ef1, qop=auth`:                      `Digest response=[redacted], qop=auth`,
		`Authorization: Basic YTpi next`:                                                  `Authorization: [redacted] next`,
		`Cookie: a=b; c=d e`:                                                              `Cookie: [redacted]`,
		// Several words.
		`secret: 'a b c' next`:                     `secret: '[redacted]' next`,
		`secret: 'it''s a b' next`:                 `secret: '[redacted]' next`,
		`{'password': 'a b', 'user': 'x'}`:         `{'password': '[redacted]', 'user': 'x'}`,
		`passphrase: correct horse battery staple`: `passphrase: [redacted]`,
		"password=correct horse\nnext":             "password=[redacted]\nnext",
		`passphrase=correct horse, user joe`:       `passphrase=[redacted], user joe`,
		`passphrase=correct horse user=joe`:        `passphrase=[redacted] user=joe`,
		`(password=hunter2) and so on`:             `(password=[redacted]) and so on`,
		`x?password=a&next=b`:                      `x?password=[redacted]&next=b`,
		`password=a,b;c&d}e"f'g\h user=joe`:        `password=[redacted] user=joe`,
		`{"msg":"password=a b","n":1}`:             `{"msg":"password=[redacted]","n":1}`,
		`{\"msg\":\"password=a b\",\"n\":1}`:       `{\"msg\":\"password=[redacted]\",\"n\":1}`,
		`:password => "x", :user => "y"`:           `:password => "[redacted]", :user => "y"`,
		`{Password:abc def}`:                       `{Password:[redacted]}`,
		`map[password:abc]`:                        `map[password:[redacted]]`,
		// Digits, lists and objects.
		`password=12345678`:                          `password=[redacted]`,
		`x {"password":123456789,"n":1}`:             `x {"password":"[redacted]","n":1}`,
		`x {\"password\":123456789}`:                 `x {\"password\":\"[redacted]\"}`,
		`x {"password":{"value":"}x"},"n":1}`:        `x {"password":"[redacted]","n":1}`,
		`x {"tokens":{"alice":"x","b":["y"]},"n":1}`: `x {"tokens":"[redacted]","n":1}`,
		`tokens:[a b c] user:x`:                      `tokens:[redacted] user:x`,
		"password={\"a\nnext":                        "password=[redacted]\nnext",
		// Addresses.
		`dial postgres://joe:pa/ss@db:5432/x`: `dial postgres://[redacted]@db:5432/x`,
		`dial redis://:p@ss@db`:               `dial redis://[redacted]@db`,
		`ssh://git@host/x and https://h:80/x`: `ssh://git@host/x and https://h:80/x`,
	} {
		r := redact.New()
		got := r.Text(text)
		if got != want {
			t.Errorf("%s became\n%s, want\n%s", text, got, want)
		}
		if changed := got != text; changed != (r.Count() > 0) {
			t.Errorf("%s: changed: %t, counted: %d", text, changed, r.Count())
		}
		if again := r.Text(got); again != got {
			t.Errorf("a second pass made %s of %s", again, got)
		}
	}
}

// TestEncoded holds that a known secret is found in base64 and hex, also in the middle of more.
func TestEncoded(t *testing.T) {
	const secret = "c4nary?>~ of 1"
	for _, text := range []string{
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawStdEncoding.EncodeToString([]byte(secret)),
		base64.URLEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
	} {
		if got := redact.New(secret).Text("a " + text + " b"); got != "a [redacted] b" {
			t.Errorf("%s became %s", text, got)
		}
	}
	for _, before := range []string{"", "x", "xy", "xyz", "a longer text with "} {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			text := encoding.EncodeToString([]byte(before + secret + " and more"))
			if got := redact.New(secret).Text(text); !strings.Contains(got, redact.Mark) || len(got) > len(text)+len(redact.Mark)-len(secret) {
				t.Errorf("%s behind %q became %s", text, before, got)
			}
		}
	}
}

// TestReadable holds that lines as the core, its roles and their metrics write them stay as they are.
func TestReadable(t *testing.T) {
	for _, line := range []string{
		`2026-11-21T01:58:18.543Z [WARN]  reeved: the volume is not encrypted (kind plain)`,
		`2026-11-21T01:58:18.547Z [INFO]  reeved: node: node=reeve-d1abf77e75cc4f03d1d05c8b4c030a45 cluster=fc3ada406c99a55396cbfaa2c6a56557 phase=forming version=0.0.0-dev`,
		`2026-11-21T01:58:18.952Z [INFO]  reeved.roles: launched: role=consensus instance=reeve-d1abf77e75cc4f03d1d05c8b4c030a45/consensus/1 pid=21037`,
		`2026-11-21T01:58:18.962Z [INFO]  reeved.plugin.role: starting: discovery-token="" discovery-user="" auth-token-ttl=300 listen-peer-urls="[unix://%2Frun%2Freeve]"`,
		`2026-11-21T01:58:18.980Z [ERROR] reeved: its secrets cannot be unsealed: tpm: no such device: node=x`,
		`{"@level":"info","@message":"serving the cluster API","@module":"curator","endpoint":"127.0.0.1:41281","initial-cluster-token":"","n":4294967295}`,
		`grpc_server_handled_total{grpc_code="NotFound",grpc_method="UserChangePassword",grpc_service="etcdserverpb.Auth"} 12345`,
		`password authentication failed for user joe; the token has expired after 3600 seconds; wrong password.`,
		`token refresh took 12.5s, secret store at 10.0.0.1:7443, secret 3 of 10, all tests passed`,
		`check that the credentials are for this cluster, and that they were not revoked or replaced`,
	} {
		r := redact.New()
		if got := r.Lines(line); got != line || r.Count() != 0 {
			t.Errorf("%s became\n%s", line, got)
		}
	}
	// What went wrong stays readable behind what may be a secret.
	const line = `[ERROR] role: turn on etcd's authorization: rpc error: code = Unavailable: role=consensus`
	if got := redact.New().Text(line); !strings.Contains(got, "code = Unavailable: role=consensus") {
		t.Errorf("it became %s", got)
	}
}

// TestLongLines holds that a role cannot keep the one who collects its log busy: the time grows as the length does, and not with its square.
func TestLongLines(t *testing.T) {
	for _, part := range []string{
		"}", "\\", " ", `"`, "password=", "password 'a ", "token 'a ", "PWD=/ ", `password="`, "password=,", "password={\"", "-u a:", "x://a:", "--password ", "secret: [redacted] ",
	} {
		for _, start := range []string{"", "password=a"} {
			redact.New("canary-12345678").Text(start + strings.Repeat(part, longLine/len(part)))
		}
	}
}

// FuzzText holds that no private key is left, whatever is around it, and that JSON stays JSON.
func FuzzText(f *testing.F) {
	f.Add("a", "b", `{"token":"x"}`)
	f.Add("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", `["password=\"x\""]`)
	f.Add("password={\"", "secret: 'a", `{"password":{"a":1},"b":["--token","x"]}`)
	f.Add("--password ", "-u a:b", `{"token":12345}`)
	f.Add("\\n", "token: ", `{"secret":"\\\"","a":[1,true]}`)
	der, err := x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte("seed"), ed25519.SeedSize/4)))
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
