"""What can go wrong on a worker. The codes also stand in settlements, and with them in the daemon's journal."""

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, Tampered, Unavailable


class BadOffer(InvalidInput):
    code = "worker_offer.malformed"
    hint = "update the worker or the daemon: they do not speak the same version"


class ToolNotOffered(Unavailable):
    code = "worker_offer.tool_not_offered"
    hint = "the worker attests which tools and tiers it has; `palyra worker show` lists them"


class NoSlot(LimitExceeded):
    code = "worker_offer.no_slot"
    hint = "every slot of the worker is taken: the daemon offers it to another"


class WindingDown(Unavailable):
    code = "worker_offer.winding_down"
    hint = "the worker is being stopped and takes no new work"


class ArtifactDamaged(Tampered):
    code = "worker_artifact.damaged"
    hint = "what came is not what the lease names by its digest: look at the daemon's artifact store"


class Disclaimed(Denied):
    code = "worker_offer.disclaimed"
    hint = "the worker said that it never began this lease, and does not begin it afterwards"


class NoRoom(LimitExceeded):
    code = "worker_artifact.no_room"
    hint = "free space on the worker's disk, or give the call fewer files"


class TooMuchLeft(LimitExceeded):
    code = "worker_artifact.too_many_entries"
    hint = "the call made more files than a worker gathers: let it work in fewer, or in an archive"


class ArtifactsUnsent(Failed):
    code = "worker.artifacts_unsent"
    hint = "the call ran, but its files did not reach the daemon before the deadline"


class ArtifactMissing(Failed):
    code = "worker.artifact_missing"
    hint = "the daemon did not give the worker an input of the lease before the deadline"


class Interrupted(Failed):
    code = "worker.interrupted"
    hint = "the worker stopped while it worked; whether the call had an effect is not known, look before asking again"


class NoteBad(Tampered):
    code = "worker.note_bad"
    hint = "a note of a lease cannot be read: the lease is reported as interrupted"


class WorkerRefused(Denied):
    code = "worker.refused"
    hint = "ask the operator: the daemon does not know this worker any more (revoked, locked, or paired anew elsewhere)"


class WorkerCertificateEnded(Denied):
    code = "worker.certificate_ended"
    hint = "the worker was away for longer than its certificate lasts: `palyra-workerd leave --forget`, then join again"


class ImageFileBad(Unavailable):
    code = "worker.image_file_bad"
    hint = "the file that names this machine's image has to be JSON with image_digest_sha256; see the image's build"
