package keeper

import (
	"maps"
	"slices"
	"strings"
)

// inPlaceValue is the published value that names the files that are written in place.
const inPlaceValue = "written-in-place"

// written knows which of the role's files are written in place, since something is mounted on them, and says so: in the log, and as a published
// value. It is no reason to be Degraded. In a container there is no other way, and the worst that can happen is that somebody reads the file in the
// moment in which it is written.
type written struct {
	host  Host
	files map[string]bool
}

// note takes note of how a file is written.
func (w *written) note(path string, inPlace bool) {
	if path == "" || w.files[path] == inPlace {
		return
	}
	if inPlace {
		w.host.Logger().Warn("something is mounted on the file, as in most containers: it is written in place, and who reads it in that moment may see a part of it",
			"path", path, "mend", "mount its directory in place of the file")
	} else {
		w.host.Logger().Info("nothing is mounted on the file any more: it is replaced as one step again", "path", path)
	}
	if w.files == nil {
		w.files = make(map[string]bool)
	}
	if w.files[path] = inPlace; !inPlace {
		delete(w.files, path)
	}
	w.host.SetValue(inPlaceValue, strings.Join(slices.Sorted(maps.Keys(w.files)), " "))
}
