'use strict';
// The plugin beacon is an example of a role that is not written in Go: it speaks nothing but the protocols. Its README is the guide for writing others.

const { serve } = require('./plugin');
const { manifest } = require('./manifest');
const { Beacon } = require('./beacon');

serve(manifest, Beacon);
