package consensusv1

import (
	"encoding/hex"
	"fmt"
	"time"
)

// shownID is how much of the ID of a generation people are shown, in bytes.
const shownID = 4

// ShowGeneration returns how people are told of a generation of the store: by its ID, and when it was begun, which is what its number says. The first one has no ID.
func ShowGeneration(number uint64, id []byte) string {
	if len(id) == 0 {
		return fmt.Sprint(number)
	}
	return fmt.Sprintf("%s (begun %s)", hex.EncodeToString(id[:min(len(id), shownID)]), time.Unix(int64(number), 0).UTC().Format(time.RFC3339))
}
