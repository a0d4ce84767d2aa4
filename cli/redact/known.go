package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// forms are the texts as which a secret is found: as it is, as it is within JSON, once and twice, as a document can be a text within another one, and in
// base64 and hex.
func forms(secret string) []string {
	once := inJSON(secret)
	found := []string{secret, once, inJSON(once)}
	// The encoded form of a short one is found in words that have nothing to do with it.
	if len(secret) < shortest {
		return found
	}
	inHex := hex.EncodeToString([]byte(secret))
	found = append(found, inHex, strings.ToUpper(inHex))
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		padded := encoding.EncodeToString([]byte(secret))
		found = append(found, padded, strings.TrimRight(padded, "="))
		for shift := range 3 {
			found = append(found, within(encoding, secret, shift))
		}
	}
	return found
}

// within is what every base64 text has in which a secret is, behind as many bytes as shift says, or three, six and so on more: without the characters that
// depend also on what is around it.
func within(encoding *base64.Encoding, secret string, shift int) string {
	encoded := encoding.EncodeToString(append(make([]byte, shift), secret...))
	bits := 8 * (shift + len(secret))
	return encoded[(8*shift+5)/6 : bits/6]
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
