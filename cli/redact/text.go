package redact

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Mark is in the place of what was taken out.
const Mark = "[redacted]"

// secretWords are parts of names under which secrets are kept.
const secretWords = `passw|passphrase|secret|token|api[_-]?key|private[_-]?key|credential|authorization|cookie`

// secretHints are parts of all of them.
var secretHints = []string{"passw", "passphrase", "secret", "token", "key", "credential", "authorization", "cookie"}

// pattern is something to look for. Only a text that has one of its hints, in lower case, can have it: nearly all lines have none, and a log is long.
type pattern struct {
	hints []string
	of    *regexp.Regexp
}

func hinted(lower string, hints ...string) bool {
	return slices.ContainsFunc(hints, func(hint string) bool { return strings.Contains(lower, hint) })
}

var (
	// privateKeys are what is a private key in itself: PEM blocks, also where line ends are escaped, where the end of the text cuts the block off, or
	// where its beginning was cut off; the DER of Ed25519, P-256 and SEC 1 keys in base64 or hex; and tokens that are signed JSON.
	privateKeys = []pattern{
		{[]string{"private key-----"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)},
		{[]string{"private key-----"}, regexp.MustCompile(`([A-Za-z0-9+/=]{16,}(\\+[nr]|\s)*)+-----END [A-Z0-9 ]*PRIVATE KEY-----`)},
		{
			[]string{"mc4caqawbqydk2vwbciei", "mfecaqewbqydk2vwbciei", "mighageambmgbyqgsm49", "mhccaqeei"},
			regexp.MustCompile(`(MC4CAQAwBQYDK2VwBCIEI|MFECAQEwBQYDK2VwBCIEI|MIGHAgEAMBMGByqGSM49|MHcCAQEEI)[A-Za-z0-9+/=_-]+`),
		},
		{[]string{"302e020100300506032b657004220420"}, regexp.MustCompile(`(?i)302e020100300506032b657004220420[0-9a-f]{64}`)},
		{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	}
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}`)
	userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s:@"]+:[^/\s@"]+@`)
	// named is a name that says what its value is, and the beginning of that, as logs and JSON have it, also where quotes are escaped.
	named = regexp.MustCompile(`(?i)[A-Za-z0-9_.-]*(?:` + secretWords + `)[A-Za-z0-9_.-]*(?:\\*")?\s*[=:]\s*(\\*")?`)
	bare  = regexp.MustCompile(`^[^\s"',;&{}\[\]()\\]+`)
	// scalar is a value that is no secret, and whose place in JSON a text could not take.
	scalar = regexp.MustCompile(`^(-?[0-9.eE+-]+|true|false|null)$`)
)

// Redactor takes secrets out of texts.
type Redactor struct {
	texts []string
	count int
}

// New returns a Redactor that takes out what is a private key or is named as a secret, and the known ones wherever they are.
func New(known ...string) *Redactor {
	texts := make(map[string]bool)
	for _, secret := range known {
		if secret == "" {
			continue
		}
		texts[secret] = true
		// As it is within JSON, once and twice: a document can be a text within another one.
		once := inJSON(secret)
		texts[once] = true
		texts[inJSON(once)] = true
	}
	r := &Redactor{}
	for text := range texts {
		r.texts = append(r.texts, text)
	}
	// The longest first: one may be part of another.
	slices.SortFunc(r.texts, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return r
}

func inJSON(text string) string {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err) // A string can be encoded.
	}
	quoted := strings.TrimSuffix(encoded.String(), "\n")
	return quoted[1 : len(quoted)-1]
}

// Count is how many secrets were taken out so far.
func (r *Redactor) Count() int { return r.count }

// keys takes private keys out of a text.
func (r *Redactor) keys(text string) string {
	lower := strings.ToLower(text)
	for _, pattern := range privateKeys {
		if !hinted(lower, pattern.hints...) {
			continue
		}
		text = pattern.of.ReplaceAllStringFunc(text, func(string) string {
			r.count++
			return Mark
		})
	}
	return text
}

// Text returns a text without its secrets.
func (r *Redactor) Text(text string) string {
	text = r.keys(text)
	for _, known := range r.texts {
		if n := strings.Count(text, known); n > 0 {
			r.count += n
			text = strings.ReplaceAll(text, known, Mark)
		}
	}
	lower := strings.ToLower(text)
	if hinted(lower, "bearer", "basic") {
		text = r.replace(bearer, text, func(groups []string) string { return groups[1] + groups[2] + Mark })
	}
	if hinted(lower, "://") {
		text = r.replace(userinfo, text, func(groups []string) string { return groups[1] + Mark + "@" })
	}
	if hinted(lower, secretHints...) {
		text = r.named(text)
	}
	return text
}

// named takes out the values that have a name which says what they are.
func (r *Redactor) named(text string) string {
	var result strings.Builder
	for {
		found := named.FindStringSubmatchIndex(text)
		if found == nil {
			result.WriteString(text)
			return result.String()
		}
		result.WriteString(text[:found[1]])
		quote := ""
		if found[2] >= 0 {
			quote = text[found[2]:found[3]]
		}
		text = text[found[1]:]
		value := bare.FindString(text)
		if quote != "" {
			value = quoted(text, len(quote)-1)
		}
		if quote != "" && closes(text) {
			continue
		}
		// Within quotes everything is a text. Outside of them "Bearer" is followed by what was dealt with, and a number is none.
		if value == "" || strings.Contains(value, Mark) ||
			quote == "" && (scalar.MatchString(value) || strings.EqualFold(value, "bearer") || strings.EqualFold(value, "basic")) {
			continue
		}
		r.count++
		result.WriteString(Mark)
		text = text[len(value):]
	}
}

// closes says whether a quote is rather the end of a text that ends with a name than the beginning of a value, by what follows it.
func closes(after string) bool {
	after = strings.TrimLeft(after, " \t\r")
	return after == "" || strings.ContainsRune(",]}:\"\n", rune(after[0]))
}

// quoted returns a text up to its closing quote, which is escaped by as many backslashes as the opening one was; up to the end of the line if there is
// none. Where one backslash escapes a quote, a backslash within is two and a quote within has three before it.
func quoted(text string, escapes int) string {
	backslashes := 0
	for i, one := range []byte(text) {
		switch one {
		case '\\':
			backslashes++
			continue
		case '"':
			if backslashes%(2*(escapes+1)) == escapes {
				return text[:i-escapes]
			}
		case '\n':
			return text[:i]
		}
		backslashes = 0
	}
	return text
}

func (r *Redactor) replace(pattern *regexp.Regexp, text string, with func([]string) string) string {
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		replaced := with(pattern.FindStringSubmatch(found))
		if replaced != found {
			r.count++
		}
		return replaced
	})
}
