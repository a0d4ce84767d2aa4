package redact

import (
	"regexp"
	"slices"
	"strings"
)

// Mark is in the place of what was taken out.
const Mark = "[redacted]"

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
	// where its beginning was cut off; the DER of Ed25519, P-256 and SEC 1 keys in base64 or hex; keys of
	// age, and the files that they open; and tokens that are signed JSON.
	privateKeys = []pattern{
		{[]string{"private key-----"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)},
		{[]string{"private key-----"}, regexp.MustCompile(`([A-Za-z0-9+/=]{16,}(\\+[nr]|\s)*)+-----END [A-Z0-9 ]*PRIVATE KEY-----`)},
		{
			[]string{"mc4caqawbqydk2vwbciei", "mfecaqewbqydk2vwbciei", "mighageambmgbyqgsm49", "mhccaqeei"},
			regexp.MustCompile(`(MC4CAQAwBQYDK2VwBCIEI|MFECAQEwBQYDK2VwBCIEI|MIGHAgEAMBMGByqGSM49|MHcCAQEEI)[A-Za-z0-9+/=_-]+`),
		},
		{[]string{"302e020100300506032b657004220420"}, regexp.MustCompile(`(?i)302e020100300506032b657004220420[0-9a-f]{64}`)},
		{[]string{"age-secret-key-"}, regexp.MustCompile(`(?i)AGE-SECRET-KEY-(PQ-)?1[0-9A-Z]+`)},
		// Files of age hold secrets for who has the key: as they are, in armour, and their beginning in base64.
		{[]string{"age-encryption.org/v1"}, regexp.MustCompile(`(?s)age-encryption\.org/v1(\\+[nr]|\s)+-> .*`)},
		{[]string{"age encrypted file-----"}, regexp.MustCompile(`(?s)-----BEGIN AGE ENCRYPTED FILE-----.*?(-----END AGE ENCRYPTED FILE-----|\z)`)},
		{[]string{"ywdllwvuy3j5chrpb24ub3jn"}, regexp.MustCompile(`YWdlLWVuY3J5cHRpb24ub3Jn[A-Za-z0-9+/=_-]*`)},
		{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)},
	}
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}`)
	// digest is the answer of HTTP Digest, and a signature in a header.
	digest = regexp.MustCompile(`(?i)\b((?:response|signature)=\\*"?)[0-9a-f]{32,}`)
	// userinfo is everything up to the last @ of an address: a password that nobody has escaped can have a slash.
	userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s:@"]*:[^\s"]+@`)
	// logins are what curl calls with: a user and a password, in quotes, also as an argument in a list, and without.
	logins = []*regexp.Regexp{
		regexp.MustCompile(`((?:^|[\s"'\[,])(?:-u|-U|--user|--proxy-user)[\s"',=\\]*["'])([^\s"'\\:]+):([^"'\n\\]+)`),
		regexp.MustCompile(`((?:^|\s)(?:-u|-U|--user|--proxy-user)[\s=]+)([^\s"':]+):([^\s"'\\]+)`),
	}
	loginName = regexp.MustCompile(`^(-u|-U|--user|--proxy-user)$`)
	numbers   = regexp.MustCompile(`^[0-9]+$`)
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
		// What is in the mark itself would be found in every one.
		if strings.Contains(Mark, secret) {
			continue
		}
		for _, form := range forms(secret) {
			texts[form] = true
		}
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
	if hinted(lower, "response=", "signature=") {
		text = r.replace(digest, text, func(groups []string) string { return groups[1] + Mark })
	}
	if hinted(lower, "://") {
		text = r.replace(userinfo, text, func(groups []string) string { return groups[1] + Mark + "@" })
	}
	if hinted(lower, "-u", "--proxy-user") {
		for _, login := range logins {
			text = r.replace(login, text, withoutLogin)
		}
	}
	if hinted(lower, secretHints...) {
		text = r.worded(r.named(text))
	}
	return text
}

// withoutLogin keeps the user, and IDs of users and groups, which some programs call the same.
func withoutLogin(groups []string) string {
	if numbers.MatchString(groups[2]) && numbers.MatchString(groups[3]) {
		return groups[0]
	}
	return groups[1] + groups[2] + ":" + Mark
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
