package clusterv1

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// IncarnationHeader is the gRPC header in which every call of a node carries the incarnation of its core.
const IncarnationHeader = "reeve-incarnation"

// nonceSize is the length of an incarnation's nonce in bytes.
const nonceSize = 16

// Header returns the incarnation as it is written in the header: its number, a dot, and its nonce in hex.
func (x *Incarnation) Header() string {
	return strconv.FormatUint(x.GetNumber(), 10) + "." + hex.EncodeToString(x.GetNonce())
}

// ParseIncarnation reads what Header has written.
func ParseIncarnation(header string) (*Incarnation, error) {
	first, second, _ := strings.Cut(header, ".")
	number, err := strconv.ParseUint(first, 10, 64)
	nonce, errNonce := hex.DecodeString(second)
	if err != nil || errNonce != nil || number == 0 || len(nonce) != nonceSize {
		return nil, errors.New("not an incarnation: a number from 1 on, a dot, and 32 hexadecimal digits")
	}
	return &Incarnation{Number: number, Nonce: nonce}, nil
}
